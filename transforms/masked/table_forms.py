"""Limits of the tables of an exchange and of a party's state, by the plan of their round.

Masked words, pseudonyms and keys are random, so a file holds all of their bytes, however it is compressed: a file with
more rows than fit into it can't come from a party.
"""

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.masked.exchange import MESSAGE_SCHEMA, SUM_SCHEMA
from dapple_dp.schemas.masked.pairwise_messages import (
    LETTER_BYTES,
    PINNED_SCHEMA,
    HandedOut,
    Letter,
    SenderKeys,
    Sent,
    schema_of,
)
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA
from dapple_dp.transforms.files.untrusted import TableForm

_ROW_BYTES = 1 << 9
"""Upper bound on the bytes of a row's names, keys and shares."""
_LEAST_BYTES = {SenderKeys: 64, Letter: LETTER_BYTES, HandedOut: 8}
"""Lower bound on the random bytes of a row in its file."""


def messages_form(plan: RoundPlan) -> TableForm:
    """Returns the limits of a file of messages, each with as many words as the round has."""
    return TableForm(schema=MESSAGE_SCHEMA, row_bytes=_row(8 * plan.size, plan), least_bytes=8 * plan.size)


def sum_form(plan: RoundPlan) -> TableForm:
    """Returns the limits of one row: the sum, and the names and tags of any number of senders."""
    return TableForm(schema=SUM_SCHEMA, n_rows=1, row_bytes=_row(8 * plan.size, plan), per_byte=8)


def sent_form(kind: type[Sent], path: str) -> TableForm:
    """Returns the limits of a file of a leg of pairwise masks."""
    return TableForm(schema=schema_of(kind), row_bytes=_ROW_BYTES + 2 * len(path), least_bytes=_LEAST_BYTES[kind])


def pinned_form(size: int) -> TableForm:
    """Returns the limits of senders' statistics before they are masked; many of them can be zero."""
    return TableForm(schema=PINNED_SCHEMA, row_bytes=16 * size + _ROW_BYTES, least_bytes=1)


def releases_form(plan: RoundPlan) -> TableForm:
    """Returns the limits of the releases of a round."""
    words = 16 * plan.size + len(plan.releases) * (1 << 12)
    return TableForm(schema=RELEASE_SCHEMA, n_rows=len(plan.releases), row_bytes=words)


def _row(n_bytes: int, plan: RoundPlan) -> int:
    """Returns the bytes of a row with this many bytes of words, in its page and as Arrow holds it."""
    return 2 * n_bytes + 2 * len(plan.path) + _ROW_BYTES
