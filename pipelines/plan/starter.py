"""`dapple init`: a first job with comments, from names and types of columns; no value and no statistic is read."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from pipelines.plan.command_line import KINDS, is_constant
from pipelines.plan.proposal import ID, TEXT, Proposal
from pipelines.run.options import beam_options
from pipelines.run.stores import check_stores
from pipelines.tables.private_source import private_source
from schemas.choices import Algorithm
from schemas.errors import ConfigError
from schemas.kmeans.fit_config import FitConfig, load_config
from schemas.privacy.plan import PrivacyUnit
from schemas.tables.data_section import DataConfig
from transforms.files import new_file
from transforms.tables.read import guessed_schema

_ALGORITHMS = (Algorithm.DP_LLOYD, Algorithm.CENTRAL_TREE, Algorithm.FEDDP_KMEANS)
_SCHEMA = "# yaml-language-server: $schema=fit.schema.json"
_HEAD = (
    _SCHEMA,
    "# Editors complete and check this file after `dapple schema fit > fit.schema.json`.",
    "# Nothing here may be chosen by looking at the private rows: settings are public.",
    "# Next: fill in what says FILL IN, then `dapple plan --config` this file, which spends nothing.",
)
MOST_QUESTIONS = 30
"""Beyond these nobody answers one after the other; the job has a line for each."""
_BESIDE_ENCODE = (
    "# Then intervals go there, too, as {kind: bounds, lower: 0, upper: 100, to: symmetric}, and domain is [-1, 1]."
)
_TAKEN = "--output must be a new file, got {}; choose another one."


def run(given: SimpleNamespace) -> dict[str, Any]:
    """The command; returns the summary that is printed last.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    check_stores({f"--{name}": getattr(given, name) for name in ("data", "output")})
    beam_options([])
    if given.algorithm not in _ALGORITHMS:
        raise ConfigError(f"--algorithm must be one of {', '.join(_ALGORITHMS)}, got {given.algorithm}; name one.")
    proposal = Proposal.of(_schema(given.data), given.client_id)
    if os.path.lexists(given.output):
        raise ConfigError(_TAKEN.format(given.output))
    questions = _questions(given, proposal)
    if all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        _ask(questions)
    proposal = _without_constants(given, proposal)
    text = job_text(given, proposal)
    missing = not isinstance(_loaded(text), FitConfig)
    try:
        new_file.create(given.output, text.encode())
    except FileExistsError as error:
        raise ConfigError(_TAKEN.format(given.output)) from error
    except OSError as error:
        raise ConfigError(f"--output must be a file that can be made, got {given.output}; check the folder.") from error
    after = "fill in what says FILL IN, then " if missing else ""
    left_out = [f"Left out: {json.dumps(name)}, {reason}.\n" for name, reason in proposal.left_out.items()]
    sys.stdout.write("".join(left_out))
    sys.stdout.write(
        f"Wrote {given.output}: {after}see what it will cost with `dapple plan --config {given.output}`.\n"
    )
    return {
        "output": given.output,
        "algorithm": given.algorithm,
        "left_out": list(proposal.left_out),
        "complete": not missing,
    }


class _Question(NamedTuple):
    """A fact to be known beside the table.

    Attributes:
      text: for people.
      kind: how an answer is read; raises ConfigError.
      place: where the answer goes, under `name`.
    """

    text: str
    kind: Callable[[str], Any]
    place: dict[str, Any]
    name: str


def _questions(given: SimpleNamespace, proposal: Proposal) -> list[_Question]:
    """What flags and types of columns leave open; the intervals of columns get a place of their own in `given`."""
    flags, wanted = vars(given), {}
    if given.algorithm == Algorithm.DP_LLOYD and isinstance(proposal.features, str):
        wanted["domain"] = f"Public interval of all numbers in {json.dumps(proposal.features)}, such as 0,100"
    if given.algorithm == Algorithm.CENTRAL_TREE:
        wanted["radius"] = "Public largest distance of a row from the origin, such as 2.5"
    if given.algorithm == Algorithm.FEDDP_KMEANS:
        wanted["server_data"] = "Path of public rows"
    if given.client_id is not None:
        wanted["client_rows"] = "Public typical number of rows of a client, such as 50"
    found = [_Question(text, KINDS[name], flags, name) for name, text in wanted.items() if flags[name] is None]
    if given.algorithm == Algorithm.DP_LLOYD and not isinstance(proposal.features, str):
        columns = {name: [0.0, 1.0] if name in proposal.booleans else given.domain for name in proposal.features}
        given.columns, text = columns, "Public interval of {}, such as 0,100"
        open_ones = [name for name in columns if columns[name] is None]
        found += [_Question(text.format(json.dumps(name)), KINDS["domain"], columns, name) for name in open_ones]
    return found


def _without_constants(given: SimpleNamespace, proposal: Proposal) -> Proposal:
    """Leaves out columns that are constant by what was answered; whether private values vary is not looked at."""
    if given.algorithm != Algorithm.DP_LLOYD:
        return proposal
    if isinstance(proposal.features, str):
        return proposal.without([proposal.features]) if _is_point(given.domain) else proposal
    constants = [name for name, ends in given.columns.items() if _is_point(ends)]
    given.columns = {name: ends for name, ends in given.columns.items() if name not in constants}
    return proposal.without(constants)


def _is_point(ends: Sequence[float] | None) -> bool:
    return ends is not None and is_constant(ends)


def _ask(questions: Sequence[_Question]) -> None:
    """Asks for what is missing; an empty answer leaves it to be filled in, and so does too long a list.

    Questions go to the standard output, since the command keeps libraries from writing to the other one, and `input()`
    writes its prompt there.
    """
    if len(questions) > MOST_QUESTIONS:
        sys.stdout.write(f"{len(questions)} bounds are missing: the job has a line for each.\n")
        return
    if questions:
        sys.stdout.write(
            "Bounds are public: answer from what you know without looking at the rows. If you do not know, then press "
            "Enter, and fill it in later. A column that is the same everywhere has equal ends, such as 5,5.\n"
        )
    for each in questions:
        while not _is_answered(each):
            pass


def _is_answered(question: _Question) -> bool:
    """Asks once; whether the answer, or none, could be taken."""
    sys.stdout.write(f"{question.text}: ")
    sys.stdout.flush()
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        line = "\ufffd\n"
    if not line:
        raise ConfigError(
            "every question must be answered, by Enter at least, got the end of the input; run it again, or give flags."
        )
    try:
        question.place[question.name] = question.kind(line.strip()) if line.strip() else None
    except ConfigError as error:
        sys.stdout.write(f"{error}\n")
        return False
    return True


def job_text(given: SimpleNamespace, proposal: Proposal) -> str:
    """A job as YAML with comments.

    Args:
      given: flags of `dapple init`, and answers.
      proposal: columns of the private table.
    """
    unit = PrivacyUnit.RECORD if given.client_id is None else PrivacyUnit.CLIENT
    features = proposal.features if isinstance(proposal.features, str) else list(proposal.features)
    data: dict[str, Any] = {"path": given.data, "features": features}
    if given.client_id is not None:
        data["client_id"] = given.client_id
    lines = [
        *_HEAD,
        *_yaml({"algorithm": given.algorithm}),
        *_yaml({"data": data}),
        *_left_out(proposal, unit, hasattr(given, "columns")),
        *_yaml({"n_clusters": given.clusters}),
        "# The unit says whom epsilon protects: one row, or all rows of one client.",
        *_yaml({"privacy": {"unit": str(unit), "epsilon": given.epsilon, "delta": given.delta}}),
        "# Choose delta well below 1 / the number of rows or clients.",
        *_bounds(given, proposal, unit),
        "# A reason per setting, and what the registry asks for, are copied to the outputs:",
        '# justification: {privacy.epsilon: "..."}',
        '# deployment: {approved_by: "...", intended_use: "..."}',
    ]
    return "\n".join(lines) + "\n"


def _bounds(given: SimpleNamespace, proposal: Proposal, unit: PrivacyUnit) -> Iterator[str]:
    clipping: dict[str, Any] = {}
    if given.algorithm == Algorithm.FEDDP_KMEANS:
        server = given.server_data
        yield f"# Public rows with the same columns, which you may publish.{_todo(server)}"
        yield from _yaml({"server_data": {"path": server}})
        clipping = {"norm": "server_radius"}
    if unit is PrivacyUnit.CLIENT:
        yield f"# The public typical number of rows of a client.{_todo(given.client_rows)}"
        clipping["client_rows"] = given.client_rows
    if clipping:
        yield from _yaml({"clipping": clipping})
    if given.algorithm == Algorithm.DP_LLOYD:
        yield from _domain(given, proposal)
    if given.algorithm == Algorithm.CENTRAL_TREE:
        yield f"# The public largest distance of a row from the origin; longer rows are shortened.{_todo(given.radius)}"
        yield from _yaml({"tree": {"radius": given.radius}})


def _domain(given: SimpleNamespace, proposal: Proposal) -> Iterator[str]:
    """Intervals of DP-Lloyd: one for each column, a line each, or that of the numbers in a list."""
    if isinstance(proposal.features, str):
        yield f"# The public interval of all numbers; a value outside is clipped to it.{_todo(given.domain)}"
        yield from _yaml({"dp_lloyd": {"domain": given.domain}})
        return
    yield "# The public interval of each column, in its unit; a value outside is clipped to it."
    if given.domain is not None:
        yield "# --domain is that of all: correct it where a column has another one."
    yield from ("dp_lloyd:", "  domain:")
    for name, ends in given.columns.items():
        key = yaml.safe_dump(name, default_style='"', width=1 << 20).rstrip("\n")
        yield f"    {key}:" + ("  # FILL IN two numbers, such as [0, 100]." if ends is None else f" {ends}")


def _todo(value: object) -> str:
    return " FILL IN." if value is None else ""


def _left_out(proposal: Proposal, unit: PrivacyUnit, by_column: bool) -> list[str]:
    """Comments on columns that are no features; names are quoted, whatever is in them."""
    lines = [f"# Left out: {json.dumps(name)}, {reason}." for name, reason in proposal.left_out.items()]
    texts = [name for name, reason in proposal.left_out.items() if reason == TEXT]
    if lines:
        lines.append(
            "# A column of numbers that is a feature all the same is added to data.features, with its interval."
        )
    if unit is PrivacyUnit.RECORD and ID in proposal.left_out.values():
        lines.append(
            "# If a person has several rows, then run it again with --client_id and the column that says whose."
        )
    if texts:
        lines.append("# Columns of text become features by a public vocabulary, never listed from the private rows:")
    lines += [f"# encode: {{{json.dumps(name)}: {{kind: one_hot, vocabulary: [...]}}}}" for name in texts]
    return lines + [_BESIDE_ENCODE] * bool(texts and by_column)


def _yaml(part: dict[str, Any]) -> Iterator[str]:
    for name, value in part.items():
        text = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=100).removesuffix("...\n")
        first, *rest = text.splitlines()
        yield f"{name}: {first}"
        yield from (f"  {line}" for line in rest)


def _loaded(text: str) -> FitConfig | None:
    """The job; None while something is to be filled in."""
    try:
        return load_config(text)
    except ConfigError:
        if "FILL IN" in text.partition(_HEAD[-1])[2]:
            return None
        raise


def _schema(path: str) -> pa.Schema:
    """Names and types of the first file's columns, as its first rows have them if it is CSV; raises InputError."""
    source = private_source(SimpleNamespace(data=DataConfig(path=path, features="any")))
    return guessed_schema(source)
