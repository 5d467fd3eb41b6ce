"""Pins of the extras: all of them, with digests, and none that contradicts those of Dapple itself."""

import pathlib
import re
import runpy

import pytest

from deploy import sbom

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMES = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def versions(text):
    return {name.lower().replace("_", "-"): version for name, version in NAMES.findall(text)}


@pytest.fixture(scope="module")
def extras(monkeymodule):
    found = {}
    monkeymodule.setattr("setuptools.setup", lambda **given: found.update(given["extras_require"]))
    runpy.run_path(str(ROOT / "setup.py"))
    return found


@pytest.fixture(scope="module")
def monkeymodule():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_every_extra_has_its_pins(extras):
    assert set(extras) - {"test"} == set(sbom.EXTRAS)


@pytest.mark.parametrize("name", sorted(sbom.EXTRAS))
def test_every_pin_of_an_extra_has_digests_and_contradicts_no_other(name, extras):
    text = sbom.EXTRAS[name].read_text()
    blocks = re.findall(r"^\S+==[^\n]*(?:\n +--hash[^\n]*)*\n", text, re.MULTILINE)
    assert blocks
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", each) for each in blocks)
    base = versions((ROOT / "requirements.txt").read_text())
    assert not set(versions(text)) & set(base)
    wanted = {re.split(r"[\[<>=]", each)[0].lower() for each in extras[name]}
    assert wanted <= set(versions(text)) | set(base)
