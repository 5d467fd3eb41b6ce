"""States as arrays: the same to the last bit, and nothing but audited types comes out of them."""

import dataclasses
import json

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans import fit_rounds
from dapple_dp.schemas.settings.refusal import MalformedError
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.files.checkpoint import read_state
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.formats.arrays_file import arrays_to_bytes
from dapple_dp.transforms.rounds.bound_broadcast import state_digest
from dapple_dp.transforms.rounds.state_arrays import state_from_arrays, state_to_arrays
from tests.scenes import lake


@pytest.fixture(scope="module", params=["record", "client"])
def fit(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    path = lake.write_lake(folder / "lake", lake.mixture(60), np.arange(60) // 5)
    return lake.planned(lake.job(path, lake.write_server(folder / "server.parquet"), request.param))


@pytest.fixture(scope="module")
def states(fit):
    """Before the first round and after each, on made-up sums."""
    made = [each._replace(statistic=lambda *_, n=each.plan.size: np.arange(n) << 21) for each in fit.rounds]
    return loop.simulate(fit.initial, made, [None], lake.KEY).states


def test_every_state_comes_back_to_the_last_bit(fit, states):
    for state in states:
        back = state_from_arrays(state_to_arrays(state), (fit.config, fit.initial), fit_rounds._audited_type)
        assert type(back) is type(state)
        assert state_digest(back) == state_digest(state)


def test_arrays_hold_no_objects_and_are_the_same_for_the_same_bits(states):
    one, other = state_to_arrays(states[-1]), state_to_arrays(states[-1])
    assert not any(array.dtype.hasobject for array in one.values())
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def changed(arrays, change):
    """Arrays whose tree was changed; their digest is as it was."""
    tree = json.loads(arrays["tree"].tobytes())
    change(tree)
    return arrays | {"tree": np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)}


HOSTILE = {
    "a type of Python": lambda tree: tree.update(type="subprocess:Popen"),
    "a type of the house that no graph holds": lambda tree: tree.update(
        type="dapple_dp.pipelines.run.folder:RunFolder"
    ),
    "a type of Beam": lambda tree: tree.update(type="apache_beam.coders.coders:PickleCoder"),
    "no type": lambda tree: tree.pop("type"),
    "another number": lambda tree: tree["fields"].update(n_rows={"float": "0x1.0p+3"}),
    "an array that is not there": lambda tree: tree["fields"].update(server=tree["fields"]["server"] | {"at": 10**9}),
    "an array of objects": lambda tree: tree["fields"].update(server=tree["fields"]["server"] | {"array": "|O"}),
    "an array of a negative shape": lambda tree: tree["fields"].update(
        server=tree["fields"]["server"] | {"shape": [-1]}
    ),
    "a field that is none": lambda tree: tree["fields"].update(other={"is": 1}),
    "other settings": lambda tree: tree["fields"]["settings"]["fields"].update(unit={"section": "x {}"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_other_arrays_are_refused(fit, states, name):
    with pytest.raises(MalformedError):
        state_from_arrays(
            changed(state_to_arrays(states[1]), HOSTILE[name]), (fit.config, fit.initial), fit_rounds._audited_type
        )


@pytest.mark.parametrize("tree", [b"", b"[]", b"{", b"[" * 100_000, b'{"type": "builtins:tuple", "items": 3}'])
def test_data_that_are_not_a_tree_are_refused(fit, states, tree):
    arrays = state_to_arrays(states[1]) | {"tree": np.frombuffer(tree, dtype=np.uint8)}
    with pytest.raises(MalformedError):
        state_from_arrays(arrays, (fit.config, fit.initial), fit_rounds._audited_type)


def test_what_has_no_bits_is_no_state():
    with pytest.raises(TypeError, match="a state must hold arrays, numbers, strings and such, got object"):
        state_to_arrays(object())


def test_a_state_of_many_releases_is_recorded(fit, states, tmp_path):
    """A file of arrays has at most 64 of them; forty rounds release eighty."""
    releases = states[-1].releases * 80
    state = dataclasses.replace(states[-1], releases=releases)
    write_bytes(str(tmp_path / "state.npz"), arrays_to_bytes(state_to_arrays(state)))
    back = state_from_arrays(
        read_state(str(tmp_path / "state.npz")), (fit.config, fit.initial), fit_rounds._audited_type
    )
    assert state_digest(back) == state_digest(state)
