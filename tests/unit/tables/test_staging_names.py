"""The folders that two runs keep are never one, nor is one that of an output."""

import itertools

import pytest

from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.files.file_bytes import files_in
from dapple_dp.transforms.tables.staging_names import copy_folder, parsed, staging_folder

PARTS = ("a", "b", ".partial-", ".clients", "-", ".", "partial-", "clients", ".Partial-", ".CLIENTS-0f")
TEXTS = ["".join(parts) for n in (1, 2, 3) for parts in itertools.product(PARTS, repeat=n)]
IDS = [text for text in TEXTS if not text.startswith(".")]


def folders(output, run):
    try:
        staging = staging_folder(output, run)
    except ConfigError:
        return None
    return staging, copy_folder(staging)


def test_no_two_runs_have_a_folder_in_common():
    owners = {}
    for output in TEXTS:
        for run in IDS:
            for folder in folders(output, run) or ():
                assert owners.setdefault(folder, (output, run)) == (output, run)
                found = parsed(folder)
                assert found == (output, run, folder.endswith(".clients"))
    assert len(owners) > 100_000
    accepted = {output for output, _ in owners.values()}
    assert not accepted & owners.keys()


def test_no_copy_begins_like_the_folder_of_another_run():
    """On a store what begins like the name of a copy is removed with it."""
    names = {folders("a", run)[0] for run in IDS if folders("a", run)}
    assert not [name for name in names if any(name.startswith(copy_folder(other)) for other in names)]


@pytest.mark.parametrize("run", ["night.clients", "b.partial-c", "night.clients-0f", "x.CLIENTS", "night.clients.2"])
def test_an_id_like_a_folder_is_refused_before_anything_is_made(tmp_path, run):
    with pytest.raises(ConfigError, match=r"run_id must not contain '\.partial-' or '\.clients'"):
        RunFolder(str(tmp_path / "a"), run)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("output", ["a.partial-b", "a.partial-b/out", "s3://b/a.partial-b.clients/out", ".partial-b"])
def test_an_output_in_a_folder_of_a_run_is_refused(output):
    with pytest.raises(ConfigError, match="--output must not be in or named like a folder"):
        RunFolder(output, "r")


@pytest.mark.parametrize("run", ["night", "night.client", "clients", "partial-b", "-partial-", "2026-11-26.partial"])
def test_other_names_are_those_of_runs(tmp_path, run):
    folder = RunFolder(str(tmp_path / "out.partial"), run)
    folder.open()
    assert files_in(folder.staging, "") == []
