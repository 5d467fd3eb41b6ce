"""The files of `deploy/` by the schemas of Kubernetes and another reader of Dockerfiles, which Dapple does not install.

`python -m tests.own_environments containers` makes the environment.
"""

import importlib.util
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

DEPLOY = pathlib.Path(__file__).resolve().parents[3] / "deploy"
KUBERNETES = "1.34"
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(each) is None for each in ("kubernetes_validate", "dockerfile_parse")),
    reason="kubernetes-validate is not installed; python -m tests.own_environments containers",
)


def manifests():
    for path in sorted((DEPLOY / "kubernetes" / "base").glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from yaml.safe_load_all(path.read_text())


def test_kubernetes_has_all_fields_that_are_given():
    import kubernetes_validate

    found = [kubernetes_validate.validate(each, KUBERNETES, strict=True) for each in manifests()]
    assert len(found) >= 12


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which has kustomize, is not installed")
@pytest.mark.parametrize(("overlay", "gone"), [("daemon", "CronJob"), ("nightly", "Deployment")])
def test_what_kustomize_makes_is_what_kubernetes_takes(overlay, gone):
    """The base without one of its two streams, in one namespace, and images by digest alone."""
    import kubernetes_validate

    words = ["kubectl", "kustomize", str(DEPLOY / "kubernetes" / overlay)]
    made = list(yaml.safe_load_all(subprocess.run(words, capture_output=True, check=True).stdout))
    for each in made:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    named = {(each["kind"], each["metadata"]["name"]) for each in made}
    single = [("Job", "dapple-fit"), ("ConfigMap", "dapple-job")]
    base = {(each["kind"], each["metadata"]["name"]) for each in manifests()}.difference(single)
    (left_out,) = base - named
    assert (left_out[0], named - base) == (gone, set())
    assert {each["metadata"].get("namespace") for each in made if each["kind"] != "Namespace"} == {"dapple"}
    images = re.findall("image: (.*)", yaml.safe_dump_all(made))
    assert images
    assert all(re.fullmatch(r"registry\.example\.org/dapple-[a-z-]+@sha256:[0-9a-f]{64}", each) for each in images)


def test_an_unknown_field_is_found():
    import kubernetes_validate

    job = next(each for each in manifests() if each["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["runAsRoot"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, KUBERNETES, strict=True)


def test_another_reader_finds_the_same_instructions():
    import dockerfile_parse

    with open(DEPLOY / "Dockerfile", "rb") as file:
        parser = dockerfile_parse.DockerfileParser(fileobj=file)
        steps = [(each["instruction"], each["value"]) for each in parser.structure]
        assert parser.is_multistage
        assert not any(image.endswith(":latest") for image in parser.parent_images)
    words = {"ARG", "COMMENT", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in steps} == words
    assert {value for name, value in steps if name == "USER"} == {"10001:10001", "9999:9999"}
