"""The files of `deploy/`: what an image holds and who it runs as, and that compose and Kubernetes agree.

Nothing is built here. `python -m tests.own_environments containers` holds the files to the schemas of Kubernetes.
"""

import fnmatch
import pathlib
import re
import shlex
import textwrap

import pytest
import yaml

from dapple_dp.pipelines.run.flags import OUTPUT_FLAGS
from dapple_dp.pipelines.run.options import parse_job
from dapple_dp.schemas.kmeans.fit_config import load_config
from dapple_dp.schemas.kmeans.jobs.stream_config import load_stream_config
from deploy.local import downloads
from deploy.local.flink_cluster import FlinkCluster, Ports

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
PRODUCTS = ("driver", "worker", "flink", "job-server")
ON_THIS_MACHINE = {
    "rest.port",
    "rest.bind-address",
    "rest.address",
    "jobmanager.rpc.address",
    "jobmanager.rpc.port",
    "jobmanager.bind-host",
    "taskmanager.host",
    "taskmanager.bind-host",
    "io.tmp.dirs",
    "blob.server.port",
}
"""Settings of Flink that say where something listens or is."""


def instructions(text):
    """Instructions of a Dockerfile, with their words."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines()]


def stages(text):
    """Name of each stage, what it starts from, and its instructions."""
    found = {}
    for word, rest in instructions(text):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = (base, [])
        elif found:
            found[list(found)[-1]][1].append((word, rest))
    return found


def faults(text):
    """The faults of a Dockerfile, in words."""
    found, known = [], stages(text)
    defaults = dict(rest.split("=", 1) for word, rest in instructions(text) if word == "ARG")
    for name, (base, steps) in known.items():
        image = defaults.get(base.strip("${}"), base)
        if base not in known and not re.search(r":(?!latest\b)[\w.-]+$|@sha256:[0-9a-f]{64}$", image):
            found.append(f"{name}: no tag")
        for _, rest in (each for each in steps if each[0] == "RUN"):
            for command in re.findall(r"pip install[^&]*", rest):
                if not ("--require-hashes" in command or {"--no-index", "--no-deps"} <= set(command.split())):
                    found.append(f"{name}: pip without digests")
            if re.search(r"curl|wget|apt-get|https?:", rest):
                found.append(f"{name}: fetches something")
        found += [f"{name}: ADD" for word, _ in steps if word == "ADD"]
    found += [f"{name}: root" for name in PRODUCTS if user(known, name) in (None, "0", "root")]
    return found


def user(known, name):
    """Returns who a stage runs as at its end; None for the user of its base image."""
    while name in known:
        name, steps = known[name]
        users = [rest.partition(":")[0] for word, rest in steps if word == "USER"]
        if users:
            return users[-1]
    return None


@pytest.fixture(scope="module")
def dockerfile():
    return (DEPLOY / "Dockerfile").read_text()


def test_images_are_pinned_and_not_root(dockerfile):
    assert faults(dockerfile) == []
    assert set(PRODUCTS) <= set(stages(dockerfile))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("USER 10001:10001", "USER root", "driver: root"),
        ("USER 9999:9999", "", "flink: root"),
        (":1.19.3-java17", ":latest", "jars: no tag"),
        (":3.11-bookworm\n", "\n", "build: no tag"),
        ("--require-hashes", "", "build: pip without digests"),
        ("--no-index", "", "build: pip without digests"),
        ("RUN rm -f", "RUN curl -O x && rm -f", "jars: fetches something"),
        ("COPY requirements.txt", "ADD requirements.txt", "build: ADD"),
        ("_sdk:2.77.0", "_sdk", "beam: no tag"),
        ("--require-hashes --only-binary=:all: --no-deps", "", "build-gcp: pip without digests"),
    ],
)
def test_a_worse_file_is_found(dockerfile, old, new, fault):
    assert old in dockerfile
    assert fault in faults(dockerfile.replace(old, new))


def test_no_tool_that_builds_is_left(dockerfile):
    known = stages(dockerfile)
    for name in ("build", "python"):
        removed = " ".join(rest for word, rest in known[name][1] if word == "RUN").partition("pip uninstall")[2].split()
        assert {"setuptools", "pip"} <= set(removed)
    assert not any("pip" in rest for name in ("driver", "worker") for _, rest in known[name][1])


def copied(dockerfile):
    """The files copied out of the repository."""
    steps = [rest.split() for _, each in stages(dockerfile).values() for word, rest in each if word == "COPY"]
    return [source for words in steps if not words[0].startswith("--from") for source in words[:-1]]


def test_all_copied_files_exist_and_nothing_else_is_sent(dockerfile):
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = [rule[1:] for rule in rules if rule.startswith("!")]
    runner = f".runners/{downloads._RUNNER}-{downloads._RUNNER_VERSION}"
    for source in copied(dockerfile):
        assert (ROOT / source).exists() or source.startswith(f"{runner}/"), source
        assert any(source == each or source.startswith(f"{each}/") for each in sent), source
    needed = {"setup.py", "pyproject.toml", "LICENSE", "README.md", "dapple_dp", "schemas", "transforms", "pipelines"}
    assert needed | {"schedule", "requirements.txt"} <= set(copied(dockerfile))
    private = ("out/result/key", "examples/census/adult_census.parquet", "key", ".git/config", "data/rows.parquet")
    assert not any(fnmatch.fnmatch(path, each) or path.startswith(f"{each}/") for path in private for each in sent)


def wanted(path):
    """Versions that a file of requirements pins, by name."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / path).read_text(), re.MULTILINE))


def test_the_image_for_dataflow_is_a_harness_of_beam(dockerfile):
    """The image has the versions of the launcher: Beam and Python of its base, packages of the extra."""
    known = stages(dockerfile)
    _, steps = known["dataflow"]
    assert ("ENTRYPOINT", '["/opt/apache/beam/boot"]') in steps
    assert ("COPY", "--from=beam /opt/apache/beam /opt/apache/beam") in steps
    assert ("COPY", "--from=build-gcp /opt/dapple /opt/dapple") in steps
    (variables,) = (dict(each.split("=", 1) for each in rest.split()) for word, rest in steps if word == "ENV")
    assert variables["PATH"].startswith("/opt/dapple/bin:")
    assert variables["RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT"] == "1"
    images = dict(rest.split("=", 1) for word, rest in instructions(dockerfile) if word == "ARG")
    beam, python = wanted("requirements.txt")["apache-beam"], images["PYTHON_IMAGE"].partition(":")[2].partition("-")[0]
    assert (known["beam"][0], images["BEAM_IMAGE"]) == ("${BEAM_IMAGE}", f"apache/beam_python{python}_sdk:{beam}")
    assert not set(wanted("requirements.txt")) & set(wanted("deploy/requirements/gcp.txt"))
    (installed,) = (rest for word, rest in known["build-gcp"][1] if word == "RUN")
    assert "--prefix=/opt/dapple -r gcp.txt" in installed
    assert known["build-gcp"][0] == "build"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def manifests():
    paths = sorted(path for path in (DEPLOY / "kubernetes" / "base").glob("*.yaml") if path.name != KUSTOMIZATION)
    return [each for path in paths for each in yaml.safe_load_all(path.read_text())]


KUSTOMIZATION = "kustomization.yaml"
DRIVERS = {"dapple-fit", "dapple-stream", "dapple-nightly"}
LEDGER = "postgresql://dapple@ledger-database/privacy"


def pods(manifests):
    found = {}
    for each in manifests:
        spec = each.get("spec", {})
        spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
        if "template" in spec:
            found[each["metadata"]["name"]] = spec["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def of_kind(manifests):
    return lambda kind: {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


@pytest.fixture(scope="module")
def flink_up(tmp_path_factory):
    """Settings of the cluster that the tests run."""
    home, place = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("cluster")
    (home / "conf").mkdir()
    (home / "conf" / "config.yaml").write_text("{}")
    FlinkCluster(place, Ports())._configure(home)
    return yaml.safe_load((place / "conf" / "config.yaml").read_text())


def test_flink_has_the_settings_that_were_tested(compose, of_kind, flink_up):
    wanted = {name: value for name, value in flink_up.items() if name not in ON_THIS_MACHINE}
    texts = [
        compose["services"]["jobmanager"]["environment"]["FLINK_PROPERTIES"],
        compose["services"]["taskmanager-1"]["environment"]["FLINK_PROPERTIES"],
        of_kind("ConfigMap")["flink"]["data"]["FLINK_PROPERTIES"],
    ]
    for text in texts:
        found = yaml.safe_load(textwrap.dedent(text))
        assert {name: value for name, value in found.items() if name not in ON_THIS_MACHINE} == wanted
        assert found["jobmanager.rpc.address"] == "jobmanager"


def test_every_task_manager_has_a_pool_on_its_own_loopback(compose, manifests):
    services = compose["services"]
    managers = [name for name, each in services.items() if each.get("command") == "taskmanager"]
    pools = [each["network_mode"] for each in services.values() if each["image"].startswith("dapple-worker:")]
    assert sorted(pools) == sorted(f"service:{name}" for name in managers)
    images = [each["image"] for each in pods(manifests)["taskmanager"]["containers"]]
    assert [image.partition(":")[0] for image in images] == ["dapple-flink", "dapple-worker"]


def test_no_service_can_be_reached_from_outside(compose, manifests, of_kind):
    assert not any("ports" in each for each in compose["services"].values())
    assert compose["networks"] == {"cluster": {"internal": True}}
    assert not any(set(pod) & {"hostNetwork", "hostPID"} for pod in pods(manifests).values())
    assert all(each["spec"].get("type", "ClusterIP") == "ClusterIP" for each in of_kind("Service").values())
    policies = of_kind("NetworkPolicy")
    assert policies["nobody"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert set(policies) - {"nobody", "names", "driver", "ledger"} == set(pods(manifests)) - DRIVERS


def test_every_allowed_sender_reaches_the_receiver(of_kind):
    """Each rule for what leaves a pod of the cluster has one for what comes to it, and the other way round."""
    sent, heard = set(), set()
    for name in ("jobmanager", "taskmanager", "job-server", "driver"):
        spec = of_kind("NetworkPolicy")[name]["spec"]
        (own,) = spec["podSelector"]["matchLabels"].values()
        for rule in spec.get("egress", ()):
            sent |= {(own, each["podSelector"]["matchLabels"]["app"]) for each in rule["to"]}
        for rule in spec.get("ingress", ()):
            heard |= {(each["podSelector"]["matchLabels"]["app"], own) for each in rule["from"]}
    assert sent == heard
    assert not any("ipBlock" in str(each) for each in of_kind("NetworkPolicy").values())


def kustomization(name):
    return yaml.safe_load((DEPLOY / "kubernetes" / name / KUSTOMIZATION).read_text())


def test_overlays_take_one_way_each_and_images_by_digest(manifests):
    base = kustomization("base")
    assert {*base["resources"], "job.yaml", KUSTOMIZATION} == {
        path.name for path in (DEPLOY / "kubernetes" / "base").iterdir()
    }
    used = {each["image"].partition(":")[0] for pod in pods(manifests).values() for each in pod["containers"]}
    left = {}
    for name in ("daemon", "nightly"):
        overlay = kustomization(name)
        assert overlay["resources"] == ["../base"]
        assert {each["name"] for each in overlay["images"]} == used
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each["digest"]) for each in overlay["images"])
        (patch,) = (yaml.safe_load(each["patch"]) for each in overlay["patches"])
        assert patch["$patch"] == "delete"
        gone = (patch["apiVersion"], patch["kind"], patch["metadata"]["name"])
        known = [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in manifests]
        assert gone in known
        left[name] = {"dapple-stream", "dapple-nightly"} - {gone[2]}
    assert left == {"daemon": {"dapple-stream"}, "nightly": {"dapple-nightly"}}


def test_nobody_is_root_or_gains_rights(compose, manifests):
    for service in compose["services"].values():
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    for pod in pods(manifests).values():
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        for each in pod["containers"]:
            own = each["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert (own.get("runAsUser") or pod["securityContext"]["runAsUser"]) >= 1000
            assert {"memory", "ephemeral-storage"} <= set(each["resources"]["limits"])
        volumes = [each["emptyDir"] for each in pod.get("volumes", ()) if "emptyDir" in each]
        assert all(set(each) == {"sizeLimit"} for each in volumes)


def users_of_data(pod):
    return {
        each["securityContext"].get("runAsUser") or pod["securityContext"].get("runAsUser")
        for each in pod["containers"]
        if any(mount["name"] == "data" for mount in each.get("volumeMounts", ()))
    }


def test_only_driver_and_workers_see_the_data_and_as_one_user(compose, manifests, dockerfile):
    """The key is there, with mode 0600."""
    found = {name: users_of_data(pod) for name, pod in pods(manifests).items() if users_of_data(pod)}
    assert found == {name: {10001} for name in ("taskmanager", *DRIVERS)}
    services = {name for name, each in compose["services"].items() if "volumes" in each}
    assert services == {"driver", "worker-1", "worker-2"}
    assert {user(stages(dockerfile), name) for name in ("driver", "worker")} == {"10001"}


def test_every_image_is_built_here(compose, manifests, dockerfile):
    built = {each["image"]: each["build"]["target"] for each in compose["services"].values()}
    used = {each["image"] for pod in pods(manifests).values() for each in pod["containers"]}
    assert used == set(built)
    assert set(built.values()) == set(PRODUCTS)
    assert all(image.startswith(f"dapple-{target}:") for image, target in built.items())
    assert not any(image.endswith("latest") for image in built)


def test_the_job_is_one_and_its_flags_are_those_of_the_cluster(manifests, of_kind):
    flags = shlex.split((DEPLOY / "flags.txt").read_text())
    words = pods(manifests)["dapple-fit"]["containers"][0]["args"]
    assert words[4:] == flags
    options = parse_job(words[0], words[1:])
    assert options.run_id == "2026-11-20"
    assert load_config(of_kind("ConfigMap")["dapple-job"]["data"]["job.yaml"]).ledger == LEDGER
    tested = [flag.partition("=")[0] for flag in FlinkCluster(pathlib.Path("nowhere"), Ports()).flags]
    assert [flag.partition("=")[0] for flag in flags] == tested


def test_the_job_server_has_the_same_words_everywhere(compose, manifests):
    words = compose["services"]["job-server"]["command"]
    assert pods(manifests)["job-server"]["containers"][0]["args"] == words
    assert "--flink-master=jobmanager:8081" in words


def test_a_stream_is_kept_running_or_called_every_night(manifests, of_kind):
    """Both release the windows of one job, and route by the exit codes as other schedules do."""
    job = load_stream_config(of_kind("ConfigMap")["dapple-stream"]["data"]["stream.yaml"])
    assert job.ledger == LEDGER
    found = pods(manifests)
    for name, once in (("dapple-stream", False), ("dapple-nightly", True)):
        words = found[name]["containers"][0]["args"]
        assert parse_job(words[0], words[1:], (*OUTPUT_FLAGS, "--once", "--drain")).once is once
        assert found[name]["terminationGracePeriodSeconds"] >= 600
        assert set(found[name]["containers"][0]["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
        assert [each["emptyDir"] for each in found[name]["volumes"] if "emptyDir" in each] == [{"sizeLimit": "20Gi"}]
    assert of_kind("Deployment")["dapple-stream"]["spec"]["strategy"] == {"type": "Recreate"}
    nightly = of_kind("CronJob")["dapple-nightly"]["spec"]
    assert nightly["concurrencyPolicy"] == "Forbid"
    (rule,) = nightly["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2, 3, 4, 5, 67])


def test_the_driver_has_what_its_ledger_needs(dockerfile):
    """A password is never in a manifest, and the library is installed by its digests."""
    assert "requirements-postgres.txt" in (DEPLOY / "Dockerfile").read_text()
    pins = (DEPLOY.parent / "requirements-postgres.txt").read_text()
    assert pins.partition("\n")[2].strip() in (DEPLOY.parent / "requirements-dev.txt").read_text()
