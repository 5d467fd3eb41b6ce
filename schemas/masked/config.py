"""Settings of masked aggregation, for the clients' role and for the aggregator, who gets no more than it needs."""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple, Self

import pydantic
from pydantic import AfterValidator, Field

from dapple_dp.schemas.choices import MaskScheme, NoiseBy, Trust
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.noise_shares import MOST_CORRUPT, CorruptShare, DropoutShare, ShareLaw
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Count, JobSettings, Positive, Scalar, Section, Share, Text
from dapple_dp.schemas.tables.data_section import LedgerPath

AGGREGATOR = "aggregator"
COLLECTOR = "collector"
"""Party that opens the run and its rounds; with pairwise masks, shares are sealed to its key."""
SECRET_SETTING = "masked.secret_uri"
RESULT = "result"
"""Folder, within the releases, of the files that `fit` would write."""
OFFICES = (AGGREGATOR, COLLECTOR)
"""Parties other than clients."""
_KEY = re.compile(r"[A-Za-z0-9_-]{48}|[0-9a-f]{64}")
"""A key with its check, as lines have it, or the key alone in hex digits, as version 0.2.0 printed it."""
_HEX_DIGITS = 64
_CHECK_BYTES = 4
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_PARTIES = (
    "the lines of aggregator, collector and all clients (dapple masked party new), or leave it out for files without "
    "signatures"
)
_IDENTITY = "the place of this party's private key on any Beam filesystem (dapple masked party new), only with parties"
Portion = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False), Scalar]


def party_line(name: str, key: bytes) -> str:
    """Returns the line with a party's public key that the party sends to all others, for the section `parties`.

    Args:
      name: of the party.
      key: 32 bytes.

    Raises:
      ConfigError: if the name can't be that of a party.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"NAME must be letters from a to z, digits, '-', '_' and '.', got {name!a}; choose a simpler name."
        )
    return f"{name}: {base64.urlsafe_b64encode(key + _check_of(name, key)).decode()}"


def _check_of(name: str, key: bytes) -> bytes:
    """Returns bytes that show whether a line was cut, or a key is beside another name; everybody can make them."""
    return hashlib.sha256(b"dapple: a line of a party" + name.encode() + b":" + key).digest()[:_CHECK_BYTES]


def _check_key(key: str) -> str:
    """Validates the form of a public key, as printed by `dapple masked party new`."""
    if not _KEY.fullmatch(key):
        raise rejection.broken_rule("the whole line that `dapple masked party new` printed", f"{len(key)} letters")
    return key


def _key_of(name: str, text: str) -> str:
    """Returns the public key in a line, 64 hex digits."""
    if len(text) == _HEX_DIGITS:
        return text
    raw = base64.urlsafe_b64decode(text)
    key, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if check != _check_of(name, key):
        raise rejection.broken_rule("lines as their parties sent them", f"one that is not of {name} or was changed")
    return key.hex()


def _check_list(parties: dict[str, str]) -> dict[str, str]:
    """Validates the keys of aggregator, collector and at least one client, all different; returns them in hex."""
    missing = next((office for office in OFFICES if office not in parties), None)
    if missing is not None or len(parties) <= len(OFFICES):
        raise rejection.broken_rule(
            "the keys of aggregator, collector and clients", f"none for {missing or 'a client'}"
        )
    odd = next((name for name in parties if not _NAME.fullmatch(name)), None)
    if odd is not None:
        raise rejection.broken_rule("named with letters, digits, '-', '_' and '.'", ascii(odd))
    keys = {name: _key_of(name, text) for name, text in parties.items()}
    alike = {"key": keys, "name (ignoring case)": {name: name.lower() for name in keys}}
    for what, values in alike.items():
        owners: dict[str, str] = {}
        for name, value in values.items():
            if (other := owners.setdefault(value, name)) != name:
                raise rejection.broken_rule(
                    f"a different {what} for each party", f"the same {what} for {other} and {name}"
                )
    return keys


PartyKeys = Annotated[dict[Text, Annotated[Text, AfterValidator(_check_key)]], AfterValidator(_check_list)]


def check_identity(
    parties: Mapping[str, str] | None, identity_uri: str | None, others: Mapping[str, str | None], within: str = ""
) -> None:
    """Checks that a job with all parties' public keys names its private key, and that no other key is in that place.

    Args:
      parties: public keys by name; None for unsigned files.
      identity_uri: place of the party's private key.
      others: places of the job's other keys, by setting.
      within: dotted name of the section, with a dot at the end.

    Raises:
      ConfigError: if one is given without the other, or two keys are in one place.
    """
    if (parties is None) != (identity_uri is None):
        raise ConfigError(
            f"{within}parties and {within}identity_uri must be given together, got only one of them; make a key "
            "with `dapple masked party new`, and list its public part."
        )
    for setting, place in others.items():
        if identity_uri is not None and place == identity_uri:
            raise ConfigError(
                f"{within}identity_uri must differ from {setting}, got the same place; make a key with `dapple "
                "masked party new`."
            )


class PairwiseParams(NamedTuple):
    """Largest shares of clients that may collude (`corrupt`) and that may drop out (`dropout`)."""

    corrupt: CorruptShare
    dropout: DropoutShare


class MaskedConfig(Section):
    """Masking of messages, on which all clients agree (trust: masked)."""

    scheme: MaskScheme = Field(
        default=MaskScheme.SHARED_SECRET,
        description="shared_secret for masks from one secret of all clients, or pairwise for masks of each two",
    )
    secret_uri: Text | None = Field(
        default=None,
        description="the place of the clients' secret on any Beam filesystem, or leave it out for a secret of the run",
    )
    state_uri: Text | None = Field(
        default=None,
        description="a folder of mode 0700 where a party of jobs of its own keeps what it has answered (dapple masked "
        "party enroll), on a volume of its own, or leave it out for fit",
    )
    threshold: Count = Field(
        default=1, description="the fewest messages a round may be the sum of, an integer >= 1 (pairwise: >= 2)"
    )
    one_message: bool | None = Field(
        default=None,
        description="true for one message from each party, of all its clients and files together, instead of one from "
        "each client or file, for scheme pairwise in jobs of their own",
    )
    corrupt: Portion = Field(
        default=0.05,
        le=MOST_CORRUPT,
        description="the largest share of clients that may pool what they know with the aggregator, from 0 to 0.5, "
        "for scheme pairwise",
    )
    dropout: Portion = Field(
        default=0.3,
        description="the largest share of clients that may drop out of a round, in [0, 1), for scheme pairwise",
    )
    noise_by: NoiseBy = Field(
        default=NoiseBy.AGGREGATOR,
        description="aggregator, who must then see no release, both for further full noise by the clients, or clients, "
        "each of whom then adds a share of it",
    )
    parties: PartyKeys | None = Field(default=None, description=_PARTIES)
    identity_uri: Text | None = Field(default=None, description=_IDENTITY)

    @property
    def of_parties(self) -> tuple[str, ...]:
        """The settings given here that only jobs of parties have."""
        return tuple(name for name in ("parties", "state_uri", "one_message") if getattr(self, name) is not None)

    @property
    def pairwise(self) -> PairwiseParams | None:
        """Parameters that determine the neighbors of each client; None for masks from a shared secret."""
        return PairwiseParams(self.corrupt, self.dropout) if self.scheme is MaskScheme.PAIRWISE else None

    @property
    def shares(self) -> ShareLaw | None:
        """Split of the noise among the clients; None if they add none, or if each adds all of it."""
        if self.noise_by is not NoiseBy.CLIENTS:
            return None
        if self.scheme is MaskScheme.SHARED_SECRET:
            return ShareLaw(threshold=self.threshold)
        return ShareLaw(threshold=self.threshold, corrupt=self.corrupt, dropout=self.dropout)

    @property
    def drawn_variance(self) -> float:
        """Ratio of a sum's noise variance to the accounted one; if clients split the noise, with no dropouts.

        It is 1 if no list exists before clients draw their shares: the ratio then depends on the number of messages.
        """
        if self.noise_by is NoiseBy.BOTH:
            return 2.0
        factors = None if self.shares is None else self.shares.factors()
        return 1.0 if factors is None else factors[0]


def check_masked(trust: Trust, masked: MaskedConfig, key_uri: str | None) -> None:
    """Validates the section `masked` against the rest of its job.

    Raises:
      ConfigError: if trust isn't masked, keys of two roles are in one place, the threshold is too low, or parties
        are given without this party's key.
    """
    if trust is Trust.CENTRAL and masked != MaskedConfig():
        raise ConfigError(
            "trust must be masked if there is a masked section, got central; write trust: masked, or remove the "
            "section."
        )
    if masked.secret_uri is not None and masked.secret_uri == key_uri:
        raise ConfigError(
            "masked.secret_uri must differ from key_uri, got the same place; the party that adds up messages holds "
            "key_uri and must not have secret_uri."
        )
    if masked.scheme is MaskScheme.PAIRWISE and masked.threshold < 2:
        raise ConfigError(
            f"masked.threshold must be at least 2 for scheme pairwise, got {masked.threshold}; "
            "give the number of clients that must be present."
        )
    if masked.one_message and masked.scheme is not MaskScheme.PAIRWISE:
        raise ConfigError(
            f"masked.one_message isn't supported for scheme {masked.scheme}; leave it out, or set masked.scheme: "
            "pairwise."
        )
    if masked.noise_by is NoiseBy.CLIENTS and masked.scheme is MaskScheme.SHARED_SECRET and masked.corrupt > 0.0:
        raise ConfigError(
            f"masked.corrupt must be 0 for noise_by clients with scheme shared_secret, got {masked.corrupt:g}; one "
            "client that colludes can make every mask, so set masked.corrupt: 0, or masked.scheme: pairwise."
        )
    others = {"masked.secret_uri": masked.secret_uri, "key_uri": key_uri}
    check_identity(masked.parties, masked.identity_uri, others, "masked.")


class LimitConfig(Section):
    """Limit on a run's spending, which the aggregator enforces before it adds up anything."""

    epsilon: Positive = Field(description="the most that all rounds may spend together, a number > 0")
    delta: Share = Field(ge=1e-12, description="the delta at which epsilon is stated, from 1e-12 to less than 1")


class AggregateConfig(JobSettings):
    """The aggregator's job, which has no data, no secret and no release."""

    key_uri: Text = Field(description="the place of the aggregator's noise key on any Beam filesystem")
    threshold: Count = Field(default=1, description="the fewest messages to add up, an integer >= 1")
    limit: LimitConfig | None = Field(
        default=None, description="a section of the most that a run may spend, with epsilon and delta, or leave it out"
    )
    ledger: LedgerPath = None
    name: Text | None = Field(
        default=None, description="the name of the data set that the ledger charges, a non-empty string"
    )
    unit: PrivacyUnit | None = Field(
        default=None, description="record or client: what one neighbor adds or removes, for the ledger"
    )
    parties: PartyKeys | None = Field(default=None, description=_PARTIES)
    identity_uri: Text | None = Field(default=None, description=_IDENTITY)

    @pydantic.model_validator(mode="after")
    def _own_key_goes_with_those_of_all(self) -> Self:
        check_identity(self.parties, self.identity_uri, {"key_uri": self.key_uri})
        return self

    @pydantic.model_validator(mode="after")
    def _ledger_knows_the_data(self) -> Self:
        for name, value in {"name": self.name, "unit": self.unit}.items():
            if self.ledger is not None and value is None:
                raise ConfigError(f"{name} is required with a ledger; give {rejection.description(name, type(self))}.")
        return self


def validated_aggregate(data: Mapping[str, object]) -> AggregateConfig:
    """Validates plain data and returns the aggregator's job.

    Raises:
      ConfigError: one sentence about the first wrong setting.
    """
    return rejection.check_config(AggregateConfig, rejection.mapping(data, "key_uri"))
