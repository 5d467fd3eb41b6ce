"""Public parameters of a collection of reports, the same for every encoder and the decoder.

Uses only the standard library, so that devices can import it.
"""

import dataclasses
import decimal
import hashlib
import itertools
import json
import sys
from fractions import Fraction
from typing import Any, Self

from dapple_dp.schemas.choices import Choice, ReportMode, Tier
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import json_text
from dapple_dp.schemas.settings.plain_fields import Fields, is_finite
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal

FORMAT_VERSION = 1
WORD = 1 << 64
KEY_BYTES = 16
MOST_SIZE = 1 << 16
"""Maximum number of codewords, so that an index fits into two bytes."""
MOST_LEVELS = 12
"""Maximum depth of a report tree; its decoder keeps 2**depth sums."""
MOST_FEATURES = 1 << 12
"""Maximum number of features in a report; its decoder keeps a sum per pair of them."""
MOST_CLUSTERS = 1 << 16
"""Maximum number of clusters in a decoded model."""
MOST_PARAMETER_BYTES = 1 << 24
"""Maximum bytes of `parameters.json`."""
MOST_STATED_EPSILON = 100.0
"""Largest epsilon that parameters may state; larger ones give no useful guarantee."""
_FIELDS = frozenset({"version", "variant", "n_clusters", "features", "radius", "depth", "key", "guarantee", "choices"})
_MOST_BATCH = 1 << 40
_MOST_CHOICES = 2
_LEAST, _LARGEST = sys.float_info.min, sys.float_info.max
_FARTHEST = 1e100


class ReportVariant(Choice):
    """Content of a report.

    LEAVES: like nested, with all sets of levels equally likely, so that all leaves of the tree have little noise.
    NESTED: one of many public codewords near the point; its sign is for a random set of levels of a tree.
    POINTS: like nested, without levels: every report encodes the whole point.
    PRIVUNIT: like nested, with codewords that the client draws in private and sends in full.
    PAPER: Algorithms 5 to 8 of Chang, Ghazi, Kumar, Manurangsi (2021): one level, two bits.
    """

    LEAVES = "leaves"
    NESTED = "nested"
    POINTS = "points"
    PRIVUNIT = "privunit", Tier.EXPERIMENTAL
    PAPER = "paper", Tier.PAPER_ONLY


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SubsetChoice:
    """Random choice of one of `size` items, of which `near` are favored: the mechanism of every report.

    A uniform 64-bit word below `threshold` selects a favored item, any other word one of the rest, both uniformly.

    Attributes:
      size: at least 2.
      near: number of favored items, from 1 to size - 1.
      threshold: from 1 to 2**64 - 1.
    """

    size: int
    near: int
    threshold: int

    @classmethod
    def at_most(cls, size: int, near: int, epsilon: float) -> Self:
        """Creates the most accurate choice with a privacy loss of at most `epsilon`, in exact arithmetic."""
        lower = exp_below(epsilon)
        inside = near * lower / (near * lower + size - near)
        return cls(size=size, near=near, threshold=int(inside * WORD))

    @property
    def ratio(self) -> Fraction:
        """Ratio of the probabilities of a favored item and any other one, exact."""
        return Fraction(self.threshold * (self.size - self.near), (WORD - self.threshold) * self.near)

    def keeps(self, epsilon: float) -> bool:
        """Returns whether the privacy loss is at most `epsilon` in both directions; never true by mistake."""
        if not (self.size >= 2 and 0 < self.near < self.size and 0 < self.threshold < WORD):
            return False
        largest = exp_below(epsilon)
        return 1 / largest <= self.ratio <= largest


def exp_below(exponent: float) -> Fraction:
    """Returns a rational number just below exp(exponent)."""
    with decimal.localcontext(decimal.Context(prec=50)):
        return Fraction(decimal.Decimal(exponent).exp().next_minus())


def canonical(columns: list[dict[str, Any]] | None) -> str | None:
    """Returns an encoding as canonical JSON text."""
    return None if columns is None else json.dumps(columns, sort_keys=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportGuarantee:
    """Guarantee of a collection of reports for each client.

    Attributes:
      mode: local or shuffle.
      local_epsilon: pure epsilon of one report, against anyone who sees it.
      epsilon: of the whole batch, against readers of the shuffled reports; `local_epsilon` in mode local.
      delta: of the whole batch; 0 in mode local.
      min_batch: smallest number of reports that is decoded.
    """

    mode: ReportMode
    local_epsilon: float
    epsilon: float
    delta: float
    min_batch: int

    def is_met_by(self, n_clients: int) -> bool:
        """Returns whether reports of this many clients fulfill the guarantee; the only check of a batch's size."""
        return self.mode is ReportMode.LOCAL or n_clients >= self.min_batch

    @classmethod
    def from_plain(cls, content: object) -> Self:
        """Parses the guarantee of `parameters.json`; raises MalformedError for other content."""
        fields = Fields(content, {"mode", "local_epsilon", "epsilon", "delta", "min_batch"})
        mode = ReportMode(fields.text("mode"))
        shuffled = mode is ReportMode.SHUFFLE
        return cls(
            mode=mode,
            local_epsilon=fields.number("local_epsilon", _LEAST, MOST_STATED_EPSILON),
            epsilon=fields.number("epsilon", _LEAST, MOST_STATED_EPSILON),
            delta=fields.number("delta", _LEAST, 1.0 - sys.float_info.epsilon)
            if shuffled
            else fields.number("delta", 0.0, 0.0),
            min_batch=fields.whole("min_batch", 1, _MOST_BATCH),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportParameters:
    """Content of `parameters.json`; public.

    Attributes:
      variant: content of a report.
      n_clusters: number of clusters in the model.
      features: names of the features, in the order of the coordinates.
      radius: from 1e-100 to 1e100, feature units; points are clipped to this norm.
      depth: levels of the tree; 0 without one.
      key: 16 public bytes, from which all public randomness is derived.
      guarantee: the guarantee for each client.
      choices: mechanisms of a report with their epsilons, in order of use; privacy losses add up.
      encoding: encodings of columns, as canonical JSON; None if the columns themselves are the features.
    """

    variant: ReportVariant
    n_clusters: int
    features: tuple[str, ...]
    radius: float
    depth: int
    key: bytes
    guarantee: ReportGuarantee
    choices: tuple[tuple[SubsetChoice, float], ...]
    encoding: str | None = None

    def __post_init__(self) -> None:
        """Refuses unusable sizes, and mechanisms that break the guarantee, so that clients need not trust the file."""
        if self.n_features > MOST_FEATURES or self.n_clusters > MOST_CLUSTERS:
            raise ConfigError(
                f"report parameters must have at most {MOST_FEATURES} features and {MOST_CLUSTERS} clusters, got "
                f"{self.n_features} and {self.n_clusters}; use fewer."
            )
        kept = all(choice.keeps(epsilon) for choice, epsilon in self.choices)
        total = sum((Fraction(epsilon) for _, epsilon in self.choices), Fraction(0))
        if not self.choices or not kept or total > Fraction(self.guarantee.local_epsilon):
            raise ConfigError(
                "choices of report parameters must stay within local_epsilon, got some that don't; use an "
                "unchanged parameters file."
            )
        # A bit without a choice in this list would spend an epsilon that isn't counted.
        sizes = [choice.size for choice, _ in self.choices]
        fitting = sizes == [2, 2] if self.variant is ReportVariant.PAPER else len(sizes) == 1 and sizes[0] <= MOST_SIZE
        if not fitting:
            raise ConfigError(
                f"choices of report parameters must be those of variant {self.variant}, got sizes {sizes}; use an "
                "unchanged parameters file."
            )
        sound = len(self.key) == KEY_BYTES and 1e-100 <= self.radius <= 1e100 and 0 <= self.depth <= MOST_LEVELS
        if not sound or not self.features or self.n_clusters < 1:
            raise ConfigError(
                f"report parameters must have a key of {KEY_BYTES} bytes, radius from 1e-100 to 1e100, depth from 0 to "
                f"{MOST_LEVELS}, features and clusters; use an unchanged parameters file."
            )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def columns(self) -> list[dict[str, Any]] | None:
        """`encoding` as plain data: columns with their parameters."""
        return None if self.encoding is None else list(json_text.parse(self.encoding))

    def with_depth(self, depth: int) -> "ReportParameters":
        """Returns the parameters with another number of tree levels."""
        return dataclasses.replace(self, depth=depth)

    @property
    def digest(self) -> bytes:
        """SHA-256 of `parameters.json` as `to_json` writes it; reports in mode shuffle carry it to their shuffler."""
        return hashlib.sha256(self.to_json().encode()).digest()

    @property
    def report_bytes(self) -> int:
        """Bytes of one report: nonce and index, or nonce and codeword; without the digest for the shuffler."""
        if self.variant is not ReportVariant.PRIVUNIT:
            return 10
        return 8 + max(64, 1 << (self.n_features + 1).bit_length()) // 8

    @property
    def even_subsets(self) -> bool:
        """True if all sets of levels are equally likely."""
        return self.variant is ReportVariant.LEAVES

    @property
    def cost(self) -> str:
        """Description of the size of a report."""
        return f"{self.report_bytes} bytes per report"

    def to_json(self) -> str:
        """Returns the text of `parameters.json`; thresholds are strings, since they don't fit into a double."""
        content = {
            "version": FORMAT_VERSION,
            "variant": str(self.variant),
            "n_clusters": self.n_clusters,
            "features": list(self.features),
            "radius": self.radius,
            "depth": self.depth,
            "key": self.key.hex(),
            "encoding": self.columns,
            "guarantee": dataclasses.asdict(self.guarantee),
            "choices": [
                dataclasses.asdict(choice) | {"threshold": str(choice.threshold), "epsilon": epsilon}
                for choice, epsilon in self.choices
            ],
        }
        return json.dumps(content, indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes | str, where: str = "parameters.json") -> Self:
        """Inverse of `to_json`.

        Raises:
          ConfigError: if the text is malformed, has another version, or breaks its guarantee.
        """
        refusal = parameters_refusal(where)
        with refusal.covers():
            return cls.from_plain(json_text.parse(text, MOST_PARAMETER_BYTES))

    @classmethod
    def from_plain(cls, content: object) -> Self:
        """Parses the content of `parameters.json`; raises MalformedError or ConfigError for other content."""
        fields = Fields(content, _FIELDS, {"encoding"})
        if fields.whole("version", 0, FORMAT_VERSION) != FORMAT_VERSION:
            raise MalformedError("another version")
        columns = fields.plain("encoding")
        return cls(
            variant=ReportVariant(fields.text("variant")),
            n_clusters=fields.whole("n_clusters", 1, MOST_CLUSTERS),
            features=fields.texts("features", MOST_FEATURES),
            radius=fields.number("radius", 1e-100, 1e100),
            depth=fields.whole("depth", 0, MOST_LEVELS),
            key=fields.raw("key"),
            encoding=None if columns is None else canonical([*fields.each("encoding", MOST_FEATURES, _column)]),
            guarantee=ReportGuarantee.from_plain(fields.plain("guarantee")),
            choices=fields.each("choices", _MOST_CHOICES, _choice),
        )


def parameters_refusal(where: str) -> Refusal:
    """Builds the error for a file without valid report parameters."""
    rule = f"{where} must be report parameters of version {FORMAT_VERSION}"
    return Refusal(kind=ConfigError, rule=rule, remedy="use the file that encode wrote")


def _choice(content: object) -> tuple[SubsetChoice, float]:
    fields = Fields(content, {"size", "near", "threshold", "epsilon"})
    size = fields.whole("size", 2, MOST_SIZE)
    choice = SubsetChoice(size=size, near=fields.whole("near", 1, size - 1), threshold=fields.digits("threshold"))
    return choice, fields.number("epsilon", 0.0, MOST_STATED_EPSILON)


_NUMBERS = (
    {"column", "weight", "mean", "stddev"},
    {"column", "weight", "lower", "upper", "low"},
    {"column", "weight", "edges"},
    {"column", "weight", "vocabulary"},
)


def _column(content: object) -> dict[str, Any]:
    """Validates a column of an encoding for use on a device."""
    if not isinstance(content, dict) or content.keys() not in _NUMBERS:
        raise MalformedError("unexpected fields in 'encoding'")
    fields = Fields(content, set(content))
    fields.text("column")
    fields.number("weight", _LEAST, _LARGEST)
    if "mean" in content:
        fields.number("mean", -_LARGEST, _LARGEST)
        fields.number("stddev", _LEAST, _LARGEST)
    elif "lower" in content:
        lower = fields.number("lower", -_FARTHEST, _FARTHEST)
        if lower >= fields.number("upper", -_FARTHEST, _FARTHEST) or fields.number("low", -1.0, 0.0) not in (-1.0, 0.0):
            raise MalformedError("bounds that do not ascend")
    elif "edges" in content:
        edges = fields.each("edges", MOST_FEATURES, _edge)
        if any(low >= high for low, high in itertools.pairwise(edges)):
            raise MalformedError("edges that do not ascend")
    else:
        _check_vocabulary(fields.each("vocabulary", MOST_FEATURES, lambda value: value))
    return content


def _edge(value: object) -> float:
    if not is_finite(value):
        raise MalformedError("unexpected content at 'edges'")
    return float(value)  # type: ignore[arg-type]


def _check_vocabulary(values: tuple[object, ...]) -> None:
    """Refuses categories that aren't distinct and of one type."""
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= {str, int, bool} or len(set(values)) < len(values):
        raise MalformedError("unexpected content at 'vocabulary'")
