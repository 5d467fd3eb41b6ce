"""Which jobs of tests run in one process: those that can, in the files that `tests/scenes/in_process.py` names."""

import pathlib

import pytest
import yaml

from tests.scenes import in_process, lake

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAG = "--runner=InProcess"
STARTS = ("run_command", "run_job", "run_fit", ".fit(", "crashes.run", ".tell()")


def words(folder, word="fit", *flags, **settings):
    config = folder / "job.yaml"
    config.write_text(yaml.safe_dump(lake.job("lake", None) | settings))
    return [word, "--config", str(config), "--output", str(folder / "out"), *flags]


def test_a_job_that_can_gets_the_flag(tmp_path):
    given = words(tmp_path)
    assert lake.with_engine(given) == given
    with lake.without_beam():
        assert lake.with_engine(given) == [*given, FLAG]
    assert lake.with_engine(given) == given


def test_what_it_asks_for_ends_where_it_began(tmp_path):
    given = words(tmp_path)
    with lake.without_beam():
        with lake.without_beam():
            pass
        assert lake.with_engine(given) == [*given, FLAG]


@pytest.mark.parametrize(
    ("word", "flags", "settings"),
    [
        ("fit", (), {"trust": "masked"}),
        ("fit", (), {"recurring": {"previous": "before"}}),
        ("fit", (), {"key_uri": "s3://bucket/key"}),
        ("fit", (), {"server_data": {"path": "gs://bucket/server"}}),
        ("fit", ("--runner=DirectRunner",), {}),
        ("fit", ("--cores", "2"), {}),
        ("profile", (), {}),
        ("plan", (), {}),
    ],
    ids=str,
)
def test_any_other_stays_as_it_is(tmp_path, word, flags, settings):
    given = words(tmp_path, word, *flags, **settings)
    with lake.without_beam():
        assert lake.with_engine(given) == given
        assert lake.with_engine([]) == []
        assert lake.with_engine(["fit", "--config", str(tmp_path / "none.yaml")])[-1] != FLAG


def test_named_files_are_there_and_start_fits():
    paths = {path.stem: path for path in ROOT.glob("tests/**/test_*.py")}
    assert paths.keys() >= in_process.FILES
    for name in in_process.FILES:
        assert any(each in paths[name].read_text() for each in STARTS)
