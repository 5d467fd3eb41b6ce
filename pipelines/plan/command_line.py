"""The words of planning and verifying, and their flags; no Beam here, so that help and refusals come at once."""

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.run.flags import Parser
from pipelines.run.stores import check_stores
from schemas.errors import ConfigError
from schemas.tables.encoding import are_bounds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A word that reads no private row.

    Attributes:
      module: that holds its function `run`.
      usage: how it is written.
      flags: its flags, with the arguments of argparse.
    """

    module: str
    usage: str
    flags: Mapping[str, Mapping[str, Any]]


def _number(text: str) -> float:
    """A number; raises ConfigError."""
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"a bound must be a number, got {text!r}; write it as 2.5.") from error


def _whole(text: str) -> int:
    """A whole number; raises ConfigError."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        raise ConfigError(f"a number of rows must be whole and at least 1, got {text!r}; write it as 50.")
    return int(text)


def _radius(text: str) -> float:
    """A finite number above 0; raises ConfigError."""
    if not 0.0 < (number := _number(text)) < float("inf"):
        raise ConfigError(f"a radius must be a finite number above 0, got {text!r}; write it as 2.5.")
    return number


def _interval(text: str) -> list[float]:
    """Two numbers, a comma between them, as bounds may be, or the ends of a constant; raises ConfigError."""
    numbers = [_number(part) for part in text.split(",")]
    if len(numbers) != 2 or not (are_bounds(*numbers) or is_constant(numbers)):
        raise ConfigError(f"an interval must be two finite numbers, the smaller one first, got {text!r}; write 0,100.")
    return numbers


def is_constant(ends: Sequence[float]) -> bool:
    """Whether an interval is a single number, so that its column tells nothing."""
    return ends[0] == ends[1] and math.isfinite(ends[0])


KINDS: Mapping[str, Callable[[str], Any]] = {
    "domain": _interval,
    "radius": _radius,
    "client_rows": _whole,
    "server_data": str,
}
"""How what `dapple init` asks for is read."""
_LEDGER = {"default": None, "help": "the ledger's file, if the run has been charged"}
TOOLS: Mapping[str, Tool] = {
    "init": Tool(
        module="pipelines.plan.starter",
        usage="dapple init --data PATH --output job.yaml [--algorithm NAME] ...",
        flags={
            "--data": {"required": True, "help": "a Parquet or CSV file, a glob or a folder; names and types are read"},
            "--output": {"required": True, "help": "the job to write; must be new"},
            "--algorithm": {"default": "dp_lloyd", "help": "dp_lloyd, central_tree or feddp_kmeans"},
            "--clusters": {"default": 5, "type": int, "help": "number of centers; default: 5"},
            "--epsilon": {"default": 1.0, "type": float, "help": "of the run; default: 1"},
            "--delta": {"default": 1e-6, "type": float, "help": "of the run; default: 1e-6"},
            "--client_id": {"default": None, "help": "column of clients; makes the client the privacy unit"},
            "--client_rows": {"default": None, "help": "public typical number of rows of a client"},
            "--server_data": {"default": None, "help": "public rows, for feddp_kmeans"},
            "--domain": {"default": None, "help": "one public interval for every feature, such as 0,100"},
            "--radius": {"default": None, "help": "public largest distance of a row from the origin"},
        },
    ),
    "plan": Tool(
        module="pipelines.plan.expected",
        usage="dapple plan --config job.yaml [--rows N | --clients N] [--accuracy X]",
        flags={
            "--config": {"required": True, "help": "the YAML file of a private fit or a stream"},
            "--rows": {"default": None, "type": int, "help": "assumed number of rows, never that of the data"},
            "--clients": {"default": None, "type": int, "help": "assumed number of clients, at unit client"},
            "--accuracy": {"default": None, "type": float, "help": "finds epsilon: 0.05 lets noise cost five percent"},
            "--width": {
                "default": None,
                "type": int,
                "help": "number of features, for a list column of no public data",
            },
        },
    ),
    "verify": Tool(
        module="pipelines.plan.verify",
        usage="dapple verify FOLDER [--ledger FILE] [--sign PRIVATE | --key PUBLIC]",
        flags={
            "folder": {"help": "output of a run"},
            "--ledger": _LEDGER,
            "--sign": {"default": None, "help": "Ed25519 private key (PEM); writes signature.json if the run is whole"},
            "--key": {"default": None, "help": "Ed25519 public key (PEM) that must have signed the run"},
        },
    ),
    "clean": Tool(
        module="pipelines.plan.leftovers",
        usage="dapple clean FOLDER [--ledger FILE] [--hours N] [--flink_master HOST:PORT] [--delete] [--abandon]",
        flags={
            "folder": {"help": "in which outputs of runs lie"},
            "--ledger": _LEDGER,
            "--hours": {"default": 24.0, "type": float, "help": "untouched for so long; default: 24"},
            "--flink_master": {
                "default": None,
                "help": "Flink's REST interface; jobs there of killed runs are named, and stopped with --delete",
            },
            "--delete": {"action": "store_true", "help": "remove what is listed, keys and copies of rows included"},
            "--abandon": {"action": "store_true", "help": "also what a run could still take up"},
        },
    ),
}


def parsed(name: str, argv: Sequence[str]) -> argparse.Namespace:
    """The command line of a word; raises ConfigError, in one sentence."""
    tool = TOOLS[name]
    parser = Parser(prog=f"dapple {name}", allow_abbrev=False, form=tool.usage)
    for flag, about in tool.flags.items():
        parser.add_argument(flag, **about)
    found = parser.parse_args(list(argv))
    for flag, kind in KINDS.items():
        if isinstance(getattr(found, flag, None), str):
            setattr(found, flag, kind(getattr(found, flag)))
    check_stores(vars(found))
    for flag in ("hours", "accuracy"):
        value = getattr(found, flag, None)
        if value is not None and not 0.0 <= value < float("inf"):
            raise ConfigError(f"--{flag} must be a finite number of at least 0, got {value}; give another.")
    return found
