"""The loop over rounds in memory: what may draw, what a failure leaves behind, and that simulations are no runs."""

import ast
import copy
import dataclasses
import pickle

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.plan.replay import replayed
from dapple_dp.schemas.errors import PrivacyFlowError, RunnerError
from dapple_dp.transforms.core import loop, noise
from dapple_dp.transforms.core.loop import RunKey
from dapple_dp.transforms.core.round import Round
from tests.scenes.gaussian_rounds import round_of
from tests.unit.test_import_direction import module_of, source_files, text_of

KEY = bytes(range(7, 39))


@dataclasses.dataclass(frozen=True)
class State:
    """Releases so far."""

    releases: tuple = ()

    def broadcast(self):
        return self

    def model(self):
        return np.concatenate([each.values for each in self.releases])


def statistic(block, state):
    """A block is a number."""
    return np.full(10, block << 30, dtype=np.int64) + len(state.releases)


def rounds_of(n_rounds=2, **more):
    plans = [dataclasses.replace(round_of(sums=1 << 20), path=f"test/{number}") for number in range(n_rounds)]
    plain = [Round(plan, statistic, lambda state, found: State(state.releases + found)) for plan in plans]
    return [each._replace(**more) for each in plain]


def values(state):
    return [each.values.tolist() for each in state.releases]


def test_each_round_releases_the_sum_over_all_blocks():
    first, second, state = loop.run(State(), rounds_of(), [1, 2, 4], RunKey(KEY))
    assert values(first) + values(second) == values(state)[:1]
    assert [each.path for each in state.releases] == ["test/0/sums", "test/1/sums"]
    # Fifty stddevs.
    np.testing.assert_allclose(state.model(), 7 << 30, atol=50 << 20)
    expected = noise.draw_release(KEY, rounds_of()[1].plan, np.full(10, 7 << 30) + 3)
    assert state.releases[1].values.tolist() == expected[0].values.tolist()


def test_no_block_is_a_sum_of_zeros():
    assert values(loop.run(State(), rounds_of(1), [], RunKey(KEY))[-1]) == [
        noise.draw_release(KEY, rounds_of()[0].plan, np.zeros(10, dtype=np.int64))[0].values.tolist()
    ]


# Keys.


def test_a_key_draws_in_one_run():
    key = RunKey(KEY)
    loop.run(State(), rounds_of(), [1], key)
    with pytest.raises(PrivacyFlowError, match="this run key has already drawn noise"):
        loop.run(State(), rounds_of(), [1], key)


def test_a_key_does_not_draw_after_a_failure():
    key = RunKey(KEY)
    with pytest.raises(TypeError):
        loop.run(State(), rounds_of(), [None], key)
    with pytest.raises(PrivacyFlowError, match="this run key has already drawn noise"):
        loop.run(State(), rounds_of(), [1], key)


def test_what_draws_ends_with_its_run():
    with RunKey(KEY).once() as draw:
        pass
    with pytest.raises(PrivacyFlowError, match="this run key belongs to a run that is over"):
        draw(rounds_of()[0].plan, np.zeros(10, dtype=np.int64))


@pytest.mark.parametrize("take", [pickle.dumps, copy.deepcopy])
def test_a_key_stays_in_its_process(take):
    with pytest.raises(TypeError, match="pickle"):
        take(RunKey(KEY))
    assert KEY.hex() not in repr(RunKey(KEY)).encode().hex()


def test_rounds_that_read_files_by_their_windows_are_refused():
    key = RunKey(KEY)
    with pytest.raises(PrivacyFlowError, match=r"must all read the same rows, got test/0; run the job with Beam"):
        loop.run(State(), rounds_of(at=lambda state, path: state), [1], key)
    loop.run(State(), rounds_of(), [1], key)


def names_in(path):
    tree = ast.walk(ast.parse(text_of(path)))
    return {getattr(each, "attr", getattr(each, "id", getattr(each, "name", None))) for each in tree}


def calls_in(path):
    found = (each.func for each in ast.walk(ast.parse(text_of(path))) if isinstance(each, ast.Call))
    return {getattr(each, "attr", getattr(each, "id", None)) for each in found}


def test_noise_of_rounds_is_drawn_in_two_places_and_by_keys_of_one():
    """The noise stage for Beam, whose keys `run_keys` checks in the graph, and the loop."""
    drawing = {module_of(path) for path in source_files() if "draw_release" in names_in(path)}
    assert drawing == {
        "dapple_dp.transforms.core.noise",
        "dapple_dp.transforms.on_beam.noise_stage",
        "dapple_dp.transforms.core.loop",
    }
    stages = {module_of(path) for path in source_files() if "DrawFn" in names_in(path)}
    assert stages - drawing == {"dapple_dp.transforms.masked.noise_stages"}
    makers = {module_of(path) for path in source_files() if "RunKey" in calls_in(path)}
    assert makers == {"dapple_dp.pipelines.run.run_keys"}
    simulating = {module_of(path) for path in source_files() if "simulate" in calls_in(path)}
    assert simulating == {
        "dapple_dp.pipelines.kmeans.plan.simulated_shares",
        "dapple_dp.transforms.kmeans.simulated_fit",
    }


# Failures.


def failing(error):
    def earlier(block):
        private = np.full(5, block)
        raise ValueError(f"an earlier error beside {private.sum()}")

    def raised(block, state):
        if block == 2:
            try:
                earlier(block)
            except ValueError:
                raise error from None
        return statistic(block, state)

    return raised


def arrays_behind(error):
    """Local variables with numbers in all frames of an error and of those that led to it."""
    found, queue = [], [error]
    while queue:
        current = queue.pop()
        queue += [each for each in (current.__cause__, current.__context__) if each is not None]
        place = current.__traceback__
        while place is not None:
            found += [each for each in place.tb_frame.f_locals.values() if isinstance(each, np.ndarray) or each == KEY]
            place = place.tb_next
    return found


@pytest.mark.parametrize("error", [KeyboardInterrupt(), PrivacyFlowError("a"), ValueError("b")], ids=repr)
def test_a_failing_statistic_leaves_no_sum_behind(error):
    with pytest.raises(type(error)) as caught:
        loop.run(State(), rounds_of(statistic=failing(error)), [1, 2], RunKey(KEY))
    assert arrays_behind(caught.value) == []


def test_a_failing_draw_leaves_no_sum_behind():
    rounds = rounds_of(plan=round_of(sums=1))
    for fails in (
        lambda: loop.run(State(), rounds, [1], RunKey(KEY)),
        lambda: loop.simulate(State(), rounds, [1], bytes(32)),
    ):
        with pytest.raises(ValueError, match="noise of sums must be at least") as caught:
            fails()
        assert arrays_behind(caught.value) == []


def test_too_little_memory_is_told_without_numbers():
    with pytest.raises(RunnerError, match=r"^The rows of the run don't fit into memory") as caught:
        loop.run(State(), rounds_of(statistic=failing(MemoryError("(1234, 2)"))), [1, 2], RunKey(KEY))
    assert caught.value.__context__ is None
    assert arrays_behind(caught.value) == []


def test_a_statistic_of_another_shape_is_refused():
    with pytest.raises(PrivacyFlowError, match="must be 10 whole numbers"):
        loop.run(State(), rounds_of(statistic=lambda *_: np.zeros(1, dtype=np.int64)), [1], RunKey(KEY))


# Simulations, and releases once more.


def test_a_simulation_draws_what_a_run_draws():
    found = loop.simulate(State(), rounds_of(), [1, 2], KEY)
    assert len(found.states) == 3
    assert values(found.states[-1]) == values(loop.run(State(), rounds_of(), [1, 2], RunKey(KEY))[-1])
    np.testing.assert_array_equal(found.model(), found.states[-1].model())


def test_a_simulation_is_no_run():
    found = loop.simulate(State(), rounds_of(), [1], KEY)
    assert not isinstance(found, State)
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a simulation must stay in its process"):
            take(found)


def test_one_unit_stands_for_several():
    found = loop.simulate(State(), rounds_of(1), [2], KEY, factor=1.5)
    assert values(found.states[1]) == values(loop.simulate(State(), rounds_of(1), [3], KEY).states[1])


def test_more_noise_may_be_drawn_than_planned():
    (release,) = loop.simulate(State(), rounds_of(1), [0], KEY, variance=4.0).states[1].releases
    assert release.plan.noise_multiplier == 2.0
    assert release.values.tolist() != values(loop.simulate(State(), rounds_of(1), [0], KEY).states[1])[0]


def test_server_steps_follow_from_releases():
    found = loop.simulate(State(), rounds_of(3), [1], KEY)
    again = replayed(State(), rounds_of(3), found.states[-1].releases[::-1])
    assert [values(each) for each in again] == [values(each) for each in found.states]
