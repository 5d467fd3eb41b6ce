"""The public interface is that of the register."""

import copy
import json

import pytest

from tests import public_api

PAGE = public_api.ROOT / "docs" / "reference" / "stability.md"


@pytest.fixture(scope="module")
def found():
    return public_api.public_api()


def test_every_public_name_is_registered(found):
    """If this fails: may the change be made? The page says. Then `python -m tests.public_api --write`."""
    assert public_api.text_of(found) == public_api.REGISTER.read_text()


@pytest.mark.parametrize(
    ("kind", "name"),
    [("python", "DPKMeans"), ("commands", "dapple fit"), ("exit codes", "3"), ("tables", "releases.parquet")],
)
def test_a_lost_name_is_noticed(found, kind, name):
    without = copy.deepcopy(found)
    del without[kind][name]
    assert public_api.text_of(without) != public_api.REGISTER.read_text()


def test_the_page_names_every_kind(found):
    page = PAGE.read_text()
    assert [kind for kind in found if f"`{kind}`" not in page] == []


def test_no_value_depends_on_the_process(found):
    assert " at 0x" not in json.dumps(found)
