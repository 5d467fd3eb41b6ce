"""Commands and flags for planning and verifying; imports no Beam, so that help and refusals are fast."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import click

from dapple_dp.pipelines.run.flags import PATH, Command, Flag
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.yaml_text import quoted
from dapple_dp.schemas.tables.data_section import MOST_WIDTH
from dapple_dp.schemas.tables.encoding import are_bounds


class Tool(Command):
    """A command that reads no private row.

    Args:
      name: name of the command.
      form: its usage line.
      module: module of its function `run`.
      params: parameters of the command.
    """

    def __init__(self, name: str, form: str, module: str, *params: click.Parameter):
        super().__init__(name, form, *params, callback=self._run)
        self._module = module

    def _run(self, **given: Any) -> Any:
        """Checks the flags, then imports the module and runs it."""
        return importlib.import_module(self._module).run(check_flags(given))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"a bound must be a number, got {text!r}; write it as 2.5.") from error


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        raise ConfigError(f"a number of rows must be whole and at least 1, got {text!r}; write it as 50.")
    return int(text)


def _radius(text: str) -> float:
    """Parses a finite number above 0; raises ConfigError for anything else."""
    if not 0.0 < (number := _number(text)) < float("inf"):
        raise ConfigError(f"a radius must be a finite number above 0, got {text!r}; write it as 2.5.")
    return number


def _interval(text: str) -> list[float]:
    """Parses two numbers separated by a comma, as bounds or equal ends; raises ConfigError for anything else."""
    numbers = [_number(part) for part in text.split(",")]
    if len(numbers) != 2 or not (are_bounds(*numbers) or is_constant(numbers)):
        raise ConfigError(f"an interval must be two finite numbers, the smaller one first, got {text!r}; write 0,100.")
    return numbers


def _width(text: str) -> int:
    """Parses the length of a list; raises ConfigError if it is invalid."""
    if (number := _whole(text)) > MOST_WIDTH:
        raise ConfigError(f"a width must be at most {MOST_WIDTH}, got {text!r}; a row holds no more numbers.")
    return number


def fill_of(text: str) -> float:
    """Parses a finite number; raises ConfigError for anything else."""
    if not math.isfinite(number := _number(text)):
        raise ConfigError(f"a fill must be a finite number, got {text!r}; write --missing NAME=2.5.")
    return number


def by_column(flag: str, texts: Sequence[str], kind: Callable[[str], Any]) -> dict[str, Any]:
    """Parses the values of a repeated flag by column name; the empty name stands for all other columns.

    Raises:
      ConfigError: if a column is named twice, or a value is invalid.
    """
    result: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if name in result:
            raise ConfigError(f"{flag} must be given once for {quoted(name) if name else 'all columns'}, got it again.")
        result[name] = kind(value)
    return result


def _epsilons(text: str) -> list[float]:
    """Parses numbers above 0 separated by commas; raises ConfigError for anything else."""
    parts = text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if not 0 < len(numbers) <= _MOST_EPSILONS or not all(0.0 < number < math.inf for number in numbers):
        raise ConfigError(
            f"--epsilons must be 1 to {_MOST_EPSILONS} finite numbers above 0, got {text!r}; write 0.1,0.5,1,3."
        )
    return numbers


def is_constant(ends: Sequence[float]) -> bool:
    """Returns whether an interval is a single number, so that its column carries no information."""
    return ends[0] == ends[1] and math.isfinite(ends[0])


KINDS: Mapping[str, Callable[[str], Any]] = {
    "domain": _interval,
    "radius": _radius,
    "client_rows": _whole,
    "width": _width,
    "server_data": str,
}
"""Parsers of the values that `dapple init` asks for."""
_MOST_EPSILONS = 12
_LEDGER = Flag("--ledger", "the ledger's file or URL, if the run has been charged", type=PATH)
_TOOLS = (
    Tool(
        "init",
        "dapple init --data PATH --output job.yaml [--algorithm NAME] ...",
        "dapple_dp.pipelines.plan.starter",
        Flag("--data", "a Parquet or CSV file, a glob or a folder; names and types are read", required=True, type=PATH),
        Flag("--output", "the job to write; must be new", required=True, type=PATH),
        Flag("--algorithm", "dp_lloyd, central_tree or feddp_kmeans", default="dp_lloyd"),
        Flag("--clusters", "number of centers; default: 5", default=5, type=int),
        Flag("--epsilon", "of the run; default: 1", default=1.0, type=float),
        Flag("--delta", "of the run; default: 1e-6", default=1e-6, type=float),
        Flag("--client_id", "column that says whose a row is; protects a person with all rows"),
        Flag(
            "--unit",
            "record to protect single rows, where a column may be ids of people",
            type=click.Choice(("record",)),
        ),
        Flag("--client_rows", "public typical number of rows of a client"),
        Flag("--server_data", "public rows, for feddp_kmeans", type=PATH),
        Flag(
            "--domain",
            "public interval of a column, such as age=0,120, once for each; without a name, of all others",
            multiple=True,
        ),
        Flag("--radius", "public largest distance of a row from the origin"),
        Flag("--width", "public number of numbers in every list of a list column"),
        Flag(
            "--on_invalid_rows",
            "drop or fail: what becomes of rows with missing numbers",
            type=click.Choice(("drop", "fail")),
        ),
        Flag(
            "--missing",
            "public value for missing numbers of a column, such as weight=70, once for each; never from the rows",
            multiple=True,
        ),
        Flag("--delimiter", "sign between the fields of a CSV file, if it is not recognized, such as ';' or tab"),
        Flag("--encoding", "encoding of a CSV file, if it is not recognized, such as cp1252"),
        Flag("--decimal", "decimal mark of a CSV file, '.' or ',', if both are possible"),
    ),
    Tool(
        "plan",
        "dapple plan --config job.yaml [--rows N | --clients N] [--accuracy X] [--epsilons 0.1,0.5,1,3]",
        "dapple_dp.pipelines.plan.expected",
        Flag("--config", "the YAML file of a private fit or a stream", required=True, type=PATH),
        Flag("--rows", "assumed number of rows, never that of the data", type=int),
        Flag("--clients", "assumed number of clients, at unit client", type=int),
        Flag("--accuracy", "finds the epsilon at which noise costs this share, such as 0.05", type=float),
        Flag("--epsilons", "compares the job at these, such as 0.1,0.5,1,3"),
        Flag("--width", "number of features, for a list column of no public data", type=int),
    ),
    Tool(
        "verify",
        "dapple verify FOLDER [--ledger FILE] [--inputs JOB] [--sign PRIVATE | --key PUBLIC]",
        "dapple_dp.pipelines.plan.verify",
        click.Argument(["folder"], type=PATH),
        _LEDGER,
        Flag(
            "--inputs", "the job's file: reads all input again and says whether it has changed since the run", type=PATH
        ),
        Flag("--sign", "Ed25519 private key (PEM); writes signature.json if the run is whole", type=PATH),
        Flag("--key", "Ed25519 public key (PEM) that must have signed the run", type=PATH),
    ),
    Tool(
        "clean",
        "dapple tools clean FOLDER [--ledger FILE] [--hours N] [--flink_master HOST:PORT] [--delete] [--abandon]",
        "dapple_dp.pipelines.plan.leftovers",
        click.Argument(["folder"], type=PATH),
        _LEDGER,
        Flag("--hours", "untouched for so long; default: 24", default=24.0, type=float),
        Flag("--flink_master", "Flink's REST interface; killed runs' jobs there are named, and stopped with --delete"),
        Flag("--delete", "remove what is listed, keys and copies of rows included", is_flag=True),
        Flag("--abandon", "also what a run could still take up", is_flag=True),
    ),
)
TOOLS: Mapping[str, Tool] = {str(tool.name): tool for tool in _TOOLS}


def check_flags(given: Mapping[str, Any]) -> SimpleNamespace:
    """Parses and validates the flags of a command; raises ConfigError if one is invalid."""
    namespace = SimpleNamespace(**given)
    if isinstance(getattr(namespace, "domain", None), tuple):
        namespace.columns = by_column("--domain", namespace.domain, KINDS["domain"])
        namespace.domain = namespace.columns.pop("", None)
    if isinstance(getattr(namespace, "missing", None), tuple):
        namespace.missing = by_column("--missing", namespace.missing, fill_of)
    for flag, kind in KINDS.items():
        if isinstance(getattr(namespace, flag, None), str):
            setattr(namespace, flag, kind(getattr(namespace, flag)))
    if isinstance(getattr(namespace, "epsilons", None), str):
        namespace.epsilons = _epsilons(namespace.epsilons)
    check_stores(vars(namespace))
    for flag in ("hours", "accuracy"):
        value = getattr(namespace, flag, None)
        if value is not None and not 0.0 <= value < float("inf"):
            raise ConfigError(f"--{flag} must be a finite number of at least 0, got {value}; give another.")
    return namespace
