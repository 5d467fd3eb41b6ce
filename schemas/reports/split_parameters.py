"""The public parameters of a collection by split and mix: what its clients, shuffler and decoder must agree on."""

import dataclasses
import json
import math
import sys
from typing import Self

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import (
    FORMAT_VERSION,
    KEY_BYTES,
    MOST_LEVELS,
    MOST_PARAMETER_BYTES,
    TERMS,
    CollectionTerms,
    ReportGuarantee,
    ReportParameters,
    ReportVariant,
    parameters_refusal,
)
from dapple_dp.schemas.settings import json_text
from dapple_dp.schemas.settings.plain_fields import Fields
from dapple_dp.schemas.settings.refusal import MalformedError

MESSAGE_BYTES = 20
"""Bytes of one message as it arrives: its upload, place and share."""
_MOST_MESSAGES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SplitParameters(CollectionTerms):
    """Content of `parameters.json` of variant split_and_mix; public.

    There are at most 2**depth clusters, and 2**depth leaves are summed. The guarantee is of the shuffled batch; the
    messages of one client, unshuffled, are not private.

    Attributes:
      client_stddev: lattice units; noise of one client on every coordinate of every leaf.
      modulus: prime.
      n_messages: shares of one coordinate.
    """

    client_stddev: float
    modulus: int
    n_messages: int

    def __post_init__(self) -> None:
        """Refuses parameters that no collection can have; whether they keep the promise is the numerics' to say."""
        self.check_size()
        sound = len(self.key) == KEY_BYTES and 1e-100 <= self.radius <= 1e100 and 1 <= self.depth <= MOST_LEVELS
        sound = sound and self.n_messages >= 2 and 2 < self.modulus < 1 << 62 and self.client_stddev > 0.0
        if not sound or not self.features or not 1 <= self.n_clusters <= 1 << self.depth:
            raise ConfigError(
                f"parameters of split_and_mix must have a key of {KEY_BYTES} bytes, depth from 1 to {MOST_LEVELS}, "
                "features, and a leaf per cluster; use an unchanged parameters file."
            )

    @property
    def variant(self) -> ReportVariant:
        """What a client sends."""
        return ReportVariant.SPLIT_AND_MIX

    @property
    def n_places(self) -> int:
        """Sums that are collected: of every coordinate of every leaf, and its count."""
        return (1 << self.depth) * (self.n_features + 1)

    @property
    def messages_per_client(self) -> int:
        """Messages that each client sends."""
        return self.n_places * self.n_messages

    @property
    def cost(self) -> str:
        """What a client sends, in words."""
        kilobytes = self.messages_per_client * MESSAGE_BYTES / 1024
        return f"{self.messages_per_client:,} messages ({kilobytes:,.0f} kB) per client"

    def to_json(self) -> str:
        """Text of `parameters.json`; the modulus is a string, since it may not fit into a double."""
        guarantee = dataclasses.asdict(self.guarantee)
        del guarantee["local_epsilon"]
        content = self.terms(self.variant) | {
            "guarantee": guarantee,
            "client_stddev": self.client_stddev,
            "modulus": str(self.modulus),
            "n_messages": self.n_messages,
        }
        return json.dumps(content, indent=2, sort_keys=True)

    @classmethod
    def from_plain(cls, content: object) -> Self:
        """Reads the content of `to_json`'s text; raises MalformedError or ConfigError for another."""
        fields = Fields(content, TERMS | {"client_stddev", "modulus", "n_messages"}, {"encoding"})
        return cls(
            **cls.fields_of(fields),
            guarantee=ReportGuarantee.from_plain(fields.plain("guarantee"), math.inf),
            client_stddev=fields.number("client_stddev", sys.float_info.min, 2.0**62),
            modulus=fields.digits("modulus"),
            n_messages=fields.whole("n_messages", 2, _MOST_MESSAGES),
        )


CollectionParameters = ReportParameters | SplitParameters


def collection_from_json(text: bytes | str, where: str) -> CollectionParameters:
    """Public parameters of any collection.

    Raises:
      ConfigError: if the text is none, is of another version, or breaks its promise.
    """
    with parameters_refusal(where).covers():
        content = json_text.parse(text, MOST_PARAMETER_BYTES)
        split = isinstance(content, dict) and content.get("variant") == str(ReportVariant.SPLIT_AND_MIX)
        if split and content["version"] != FORMAT_VERSION:
            raise MalformedError("another version")
        return SplitParameters.from_plain(content) if split else ReportParameters.from_plain(content)
