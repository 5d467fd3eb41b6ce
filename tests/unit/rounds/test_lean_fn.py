"""Inspection of steps by Beam: state and timers would still be found."""

import apache_beam as beam
import pytest
from apache_beam.transforms import userstate
from apache_beam.transforms.timeutil import TimeDomain

from dapple_dp.transforms.on_beam import exact_sums
from dapple_dp.transforms.on_beam.workers import LeanFn


class CountingFn(LeanFn):
    COUNT = userstate.CombiningValueStateSpec("count", sum)
    LATER = userstate.TimerSpec("later", TimeDomain.WATERMARK)

    IN_STATE, IN_TIMER = beam.DoFn.StateParam(COUNT), beam.DoFn.TimerParam(LATER)

    def process(self, keyed, count=IN_STATE, later=IN_TIMER):
        count.add(1)
        yield keyed

    @userstate.on_timer(LATER)
    def expire(self):
        yield None


def test_a_step_shows_what_its_class_adds():
    assert {"process", "start_bundle", "finish_bundle"} <= set(dir(exact_sums._BranchFn()))
    assert set(dir(CountingFn())) >= {"expire", "COUNT", "LATER"}
    assert not {"default_type_hints", "to_runner_api", "display_data", "setup"} & set(dir(exact_sums._BranchFn()))


def test_state_and_timers_are_found_as_elsewhere():
    plain = type("PlainFn", (beam.DoFn,), {name: vars(CountingFn)[name] for name in ("process", "expire")})
    assert userstate.get_dofn_specs(CountingFn()) == userstate.get_dofn_specs(plain())
    assert userstate.is_stateful_dofn(CountingFn())
    assert not userstate.is_stateful_dofn(exact_sums._BranchFn())


def test_the_sum_of_a_branch_passes_for_no_total():
    (gathered,) = exact_sums._GatherBranchesFn().process((3, "sum of a branch"))
    assert gathered == (None, "sum of a branch")
    assert list(exact_sums.TotalFn().process(gathered)) == ["sum of a branch"]
    with pytest.raises(exact_sums.PrivacyFlowError, match="got that of a branch"):
        list(exact_sums.TotalFn().process((3, "sum of a branch")))
