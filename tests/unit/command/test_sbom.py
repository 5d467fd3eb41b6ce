"""The list of what a build consists of, which another library makes and checks.

`python -m tests.own_environments sbom` makes the environment.
"""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

from deploy import sbom

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMES = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cyclonedx_py") is None,
    reason="cyclonedx-bom is not installed; python -m tests.own_environments sbom",
)


def test_the_list_has_every_pin_with_its_digests_and_is_the_same_again(tmp_path):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path in paths:
        subprocess.run([sys.executable, "-m", "deploy.sbom", str(path), "postgres", "aws"], cwd=ROOT, check=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(paths[0].read_text()) is None
    document = json.loads(paths[0].read_text())
    found = {each["name"].lower().replace("_", "-"): each["version"] for each in document["components"]}
    assert found == {
        name.lower().replace("_", "-"): version for name, version in NAMES.findall(sbom.pins(["postgres", "aws"]))
    }
    hashes = [each["externalReferences"][0]["hashes"] for each in document["components"]]
    assert all(each and all(one["alg"] == "SHA-256" for one in each) for each in hashes)
