"""A statement as a label: what is protected comes from its unit."""

import dataclasses

from dapple_dp.schemas.choices import Trust
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.privacy.statement import SIMULATED, PrivacyStatement

ROWS = PrivacyStatement(
    unit=PrivacyUnit.RECORD,
    neighboring_relation="add_or_remove_one",
    epsilon=1.0,
    delta=1e-6,
    events=(),
    trust=Trust.CENTRAL,
)


def test_a_label_of_rows_asks_for_the_person_behind_them():
    lines = str(ROWS).splitlines()
    assert lines[0] == "protects rows; if one person has several rows, use unit client"
    assert "epsilon 1, delta 1e-06" in lines


def test_a_label_of_clients_does_not():
    text = str(dataclasses.replace(ROWS, unit=PrivacyUnit.CLIENT, epoch={"windows": 3, "name": "spring"}))
    assert text.startswith("protects clients with all their rows\n")
    assert "groups=" not in text
    assert "all 3 windows of epoch spring together" in text


def test_how_sums_become_releases():
    """Sentences of one job whose workers read rows, and of senders that mask what they send."""
    assert ROWS.aggregation == (
        "The pipeline is the trusted aggregator: its workers read rows, and only noised sums leave the stage that "
        "adds noise."
    )
    masked = dataclasses.replace(ROWS, masked={"noise_by": "clients", "scheme": "pairwise"})
    assert masked.aggregation.endswith(
        "senders share masks in pairs. Messages are uniform to whoever holds none of their masks."
    )
    assert masked.aggregation[0].isupper()


def test_who_may_read_what_was_released():
    """Not an aggregator that has added the noise: it could take it off again."""
    safe = "The centers are safe to share under the guarantee above"
    known = {"scheme": "pairwise", "noise_by": "aggregator"}
    assert ROWS.readers == f"{safe}."
    assert dataclasses.replace(ROWS, masked=known | {"noise_by": "both"}).readers == f"{safe}."
    assert dataclasses.replace(ROWS, masked=known).readers == (
        f"{safe}, but not with the aggregator, who knows the noise."
    )


def test_who_is_trusted_and_against_whom_masks_hold():
    assert ROWS.assumptions == (
        "The operator of the pipeline, its workers and its storage are trusted; readers of the outputs are not."
    )
    coalitions = [
        {"parties": "the aggregator", "holds": True},
        {"parties": "one client", "holds": True},
        {"parties": "all clients", "holds": False},
    ]
    apart = dataclasses.replace(ROWS, masked={"coalitions": coalitions, "roles": "jobs of their own"})
    said = (
        "Parties follow the protocol. Epsilon and delta hold against: the aggregator; one client. "
        "They do not hold against: all clients."
    )
    assert apart.assumptions == said
    together = dataclasses.replace(apart, masked=apart.masked | {"roles": SIMULATED})
    assert together.assumptions == (f"{said} One job has all roles, so its operator, workers and storage are trusted.")
