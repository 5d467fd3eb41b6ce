"""All rounds in one process, without Beam: what pipelines must equal, and what their time is compared with."""

from collections.abc import Sequence

from schemas.clustered_fl.records import ClientRows, FederatedState, Federation
from transforms.numerics.clustered_fl.round import client_step, initial_state, server_step, sum_updates
from transforms.numerics.privacy.keystream import KeyStream


def run_rounds(
    federation: Federation,
    rows: Sequence[ClientRows],
    stream: KeyStream,
    state: FederatedState | None = None,
    rounds: int | None = None,
) -> FederatedState:
    """The state after `rounds` more rounds.

    Args:
      federation: public settings.
      rows: per client, in the order of `federation.silos`.
      stream: of the run, from its secret key.
      state: to go on from; None for the first round.
      rounds: how many; None for all that are left.
    """
    state = initial_state(federation) if state is None else state
    left = federation.training.rounds - state.round_number
    for _ in range(left if rounds is None else min(rounds, left)):
        updates = [client_step(federation, state, own, client, stream) for client, own in enumerate(rows)]
        state = server_step(federation, state, sum_updates(federation, state, updates))
    return state
