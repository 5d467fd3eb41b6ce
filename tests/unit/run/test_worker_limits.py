"""Limits of a run's workers, by its flags."""

import joblib
import pytest

from dapple_dp.pipelines.run.options import beam_options, parse_job
from dapple_dp.pipelines.tables.resources import worker_limits
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.rounds.row_cache import CACHES


def limits_of(*flags):
    with worker_limits(beam_options(flags)) as limits:
        return limits


def test_workers_of_this_process_use_the_machine():
    found = limits_of()
    assert found.cores == min(joblib.cpu_count(), 64)
    assert found.cache_bytes == 8 << 30


@pytest.mark.parametrize("flag", ["--direct_num_workers=2", "--runner=PortableRunner"])
def test_other_runners_count_the_cores_themselves(flag):
    assert limits_of(flag).cores == 0
    assert limits_of(flag, "--cores=3").cores == 3


def test_flags_limit_both():
    found = limits_of("--cores", "1", "--cache_megabytes", "0")
    assert (found.cores, found.cache_bytes) == (1, 0)


@pytest.mark.parametrize("flags", [["--cores=0"], ["--cores=-1"], ["--cores=65"], ["--cache_megabytes=-1"]])
def test_numbers_out_of_range_are_refused(flags):
    """With the command line, before anything is read or charged."""
    with pytest.raises(ConfigError, match=flags[0].partition("=")[0]):
        parse_job("fit", ["--config", "job.yaml", "--output", "out", *flags])


def test_no_two_runs_share_rows_and_none_are_left():
    with worker_limits(beam_options([])) as first, worker_limits(beam_options([])) as second:
        assert first.run != second.run
        assert CACHES.of_run(first) is not CACHES.of_run(second)
    assert not {first.run, second.run} & CACHES._kept.keys()
