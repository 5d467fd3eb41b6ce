"""`dapple init`: writes a commented first job, based on names and types of columns and on the first rows.

The job contains no value and no statistic of the rows.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from dapple_dp.pipelines.plan.command_line import KINDS, fill_of, is_constant
from dapple_dp.pipelines.plan.proposal import ID, TEXT, Proposal, check_once, ids_of_people, shown
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.pipelines.tables.private_source import private_source
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, DappleError
from dapple_dp.schemas.kmeans.fit_config import load_config
from dapple_dp.schemas.settings.yaml_text import flow, quoted
from dapple_dp.schemas.tables.columns import is_list, plain_type
from dapple_dp.schemas.tables.data_section import CsvConfig, DataConfig, indicator_name
from dapple_dp.transforms.files.formats.csv_guess import Look
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.tables.on_launcher import first_look

_ALGORITHMS = (Algorithm.DP_LLOYD, Algorithm.CENTRAL_TREE, Algorithm.FEDDP_KMEANS)
_SCHEMA = "# yaml-language-server: $schema=fit.schema.json"
_HEAD = (
    _SCHEMA,
    "# Editors complete and check this file after `dapple tools schema fit > fit.schema.json`.",
    "# Nothing here may be chosen by looking at the private rows: settings are public.",
)
_TODO = "fill in what says FILL IN, then "
_NEXT = "# Next: {}`dapple plan --config` this file, which spends nothing."
MOST_QUESTIONS = 30
"""Largest number of questions to ask; beyond it the job has a line for each instead."""
_BESIDE_ENCODE = (
    "# Then intervals go there, too, as {kind: bounds, lower: 0, upper: 100, to: symmetric}, and domain is [-1, 1]."
)
_FILLS = "# A fill stands for missing values. It is public: never take it from the private rows."
_NO_INDICATOR = " With indicator: true beside it, one more feature says where."
_CSV_FLAGS = ("delimiter", "encoding", "decimal")
_MOST_NAMED = 5
_ONE_LINE = 1 << 20
_TAKEN = "--output must be a new file, got {}; choose another one."


def run(given: SimpleNamespace) -> dict[str, Any]:
    """Runs the command; returns the summary that is printed last.

    Raises:
      DappleError: if the job can't be written.
    """
    check_stores({f"--{name}": getattr(given, name) for name in ("data", "output")})
    beam_options([])
    if given.algorithm not in _ALGORITHMS:
        raise ConfigError(f"--algorithm must be one of {', '.join(_ALGORITHMS)}, got {given.algorithm}; name one.")
    if given.client_id is not None and given.unit is not None:
        raise ConfigError("--client_id and --unit record contradict each other, got both; give one of them.")
    if os.path.lexists(given.output):
        raise ConfigError(_TAKEN.format(given.output))
    asking = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    with _unanswered() as gaps:
        found = _looked(given, asking, gaps)
        check_once(found.schema, given.data)
        _choose_unit(given, found, asking, gaps)
        proposal = Proposal.of(found.schema, given.client_id)
        questions = _questions(given, proposal, found)
        if asking:
            _ask(questions)
        proposal = _without_constants(given, proposal)
        _choose_rows(given, found, proposal, asking, gaps)
    missing = any(question.place[question.name] is None for question in questions)
    text = job_text(given, proposal, found.csv, missing)
    if not missing:
        load_config(text)
    try:
        STORE.put_new(given.output, text.encode())
    except FileExistsError as error:
        raise ConfigError(_TAKEN.format(given.output)) from error
    except OSError as error:
        raise ConfigError(f"--output must be a file that can be made, got {given.output}; check the folder.") from error
    after = _TODO if missing else ""
    left_out = [f"Left out: {quoted(name)}, {reason}.\n" for name, reason in proposal.left_out.items()]
    read_as = [f"Read as CSV with {flow(dict(found.csv), _ONE_LINE)}.\n"] if found.csv else []
    _say("".join(read_as + left_out))
    _say(f"Wrote {given.output}: {after}see what it will cost with `dapple plan --config {given.output}`.\n")
    return {
        "output": given.output,
        "algorithm": given.algorithm,
        "left_out": list(proposal.left_out),
        "complete": not missing,
    }


class _Gaps(NamedTuple):
    """Sentences on the answers that are missing where nobody can be asked, with the flags to add.

    Attributes:
      formats: on the format of the file, which is then read by the first answer.
      rows: on what the rows are.
    """

    formats: list[str]
    rows: list[str]


@contextlib.contextmanager
def _unanswered() -> Iterator[_Gaps]:
    """Collects what is missing; at the end raises ConfigError that names all of it, in place of any later error."""
    gaps = _Gaps([], [])
    try:
        yield gaps
    except DappleError:
        if not any(gaps):
            raise
    if any(gaps):
        rest = [" ".join(gaps.rows)] if gaps.rows else []
        raise ConfigError(" With the first of these, ".join([*gaps.formats, *rest]))


def _looked(given: SimpleNamespace, asking: bool, gaps: _Gaps) -> Look:
    """Inspects the first file of the table; an ambiguous CSV format is asked for, or noted with the flag to add."""
    source = private_source(SimpleNamespace(data=DataConfig(path=given.data, features="any")))
    while True:
        known = {name: value for name in _CSV_FLAGS if (value := getattr(given, name)) is not None}
        result = first_look(source, CsvConfig(**known))
        if isinstance(result, Look):
            return result
        readings = ", ".join(f"{result.flag} {_shell(value)} ({meaning})" for value, meaning in result.answers.items())
        if asking:
            _say(f"{result.why[0].upper()}{result.why[1:]}: {readings}.\n")
            answer = _typed(f"Value of {result.flag}: ", result.answers)
        else:
            gaps.formats.append(f"the format of --data is not clear: {result.why}; add {readings}.")
            answer = next(iter(result.answers))
        setattr(given, result.flag.removeprefix("--"), answer)


def _choose_unit(given: SimpleNamespace, found: Look, asking: bool, gaps: _Gaps) -> None:
    """Asks whom epsilon protects, if a column may identify people."""
    people = ids_of_people(found.schema, found.rows)
    if given.client_id is not None or given.unit is not None or not people:
        return
    if not asking:
        lines = " or ".join(f"--client_id {_shell(name)}" for name in people[:_MOST_NAMED])
        gaps.rows.append(
            f"--data may have several rows of one person, by {shown(people[:_MOST_NAMED])}; add {lines} to protect a "
            "person with all rows, or --unit record if every row is about another person."
        )
        return
    _say(
        f"Whom does epsilon protect? Rows of one person may share a value in {shown(people)}. Type the name of the "
        "column that says whose a row is, or record if every row is about another person.\n"
    )
    answers = dict.fromkeys((*(name for name in found.schema.names if name), "record"))
    chosen = _typed("Column, or record: ", answers)
    if chosen == "record" and "record" not in found.schema.names:
        given.unit = chosen
    else:
        given.client_id = chosen


def _choose_rows(given: SimpleNamespace, found: Look, proposal: Proposal, asking: bool, gaps: _Gaps) -> None:
    """Asks how to treat rows with missing values, if the first rows have some; proposes no fill."""
    features = () if isinstance(proposal.features, str) else proposal.features
    unknown = [name for name in given.missing if name not in features]
    if unknown:
        raise ConfigError(
            f"--missing must name columns of numbers that are features, got {shown(unknown)}; features: "
            f"{shown(features) or 'a list column, which has no fills'}."
        )
    for name, fill in given.missing.items():
        _check_fill(given, name, fill)
    holes = [name for name in found.holes if name in features and name not in given.missing]
    if given.on_invalid_rows is not None or not holes:
        return
    if not asking:
        fills = " ".join(f"--missing {_shell(name)}=NUMBER" for name in holes)
        gaps.rows.append(
            f"--data has rows without a number in {shown(holes)}; add {fills} with public numbers to keep such rows, "
            "--on_invalid_rows drop to leave them out, or --on_invalid_rows fail to stop at them."
        )
        return
    _say(
        f"Some rows have no number in {shown(holes)}. A public number in its place keeps such rows; know it without "
        "looking at them. Or type drop to leave such rows out, or fail to stop at them.\n"
    )
    for name in holes:
        answer = _typed_fill(given, name)
        if isinstance(answer, str):
            given.on_invalid_rows = answer
            return
        given.missing[name] = answer


def _check_fill(given: SimpleNamespace, name: str, fill: float) -> None:
    """Raises ConfigError for a fill outside the column's bounds, if these are known."""
    ends = given.columns.get(name)
    if ends is not None and not ends[0] <= fill <= ends[1]:
        raise ConfigError(
            f"--missing must be inside the bounds of {quoted(name)}, {ends[0]:g} to {ends[1]:g}, got {fill:g}; give a "
            "public value that rows can have."
        )


def _typed_fill(given: SimpleNamespace, name: str) -> float | str:
    """Asks for a fill, drop or fail until the answer is valid."""
    while True:
        line = _line(f"Public number for a missing {quoted(name)}, or drop or fail: ")
        if line in ("drop", "fail"):
            return line
        if not line:
            _say("This has no default: drop leaves such rows out, and fail stops the job there.\n")
            continue
        try:
            _check_fill(given, name, fill := fill_of(line))
        except ConfigError as error:
            _say(f"{error}\n")
        else:
            return fill


def _shell(name: str) -> str:
    return shlex.quote(name) if name.isprintable() else quoted(name)


def _typed(prompt: str, answers: Collection[str]) -> str:
    """Asks until the line is one of the answers."""
    while (line := _line(prompt)) not in answers:
        _say(f"This must be one of {', '.join(map(quoted, [*answers][:_MOST_NAMED]))}.\n")
    return line


def _say(text: str) -> None:
    """Writes to stdout, since the command silences stderr."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _line(prompt: str) -> str:
    """Reads a line from a person, stripped; raises ConfigError at the end of the input."""
    _say(prompt)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        line = "\ufffd\n"
    if not line:
        raise ConfigError("The input ended before all questions were answered; run the command again, or use flags.")
    return line.strip()


class _Question(NamedTuple):
    """A question on a fact that the table doesn't contain.

    Attributes:
      text: text of the question.
      kind: parses an answer; raises ConfigError.
      place: receives the answer, under `name`.
    """

    text: str
    kind: Callable[[str], Any]
    place: dict[str, Any]
    name: str


def _questions(given: SimpleNamespace, proposal: Proposal, found: Look) -> list[_Question]:
    """Questions left open by flags and column types; stores the columns' intervals in `given.columns`."""
    flags, wanted = vars(given), {}
    if given.algorithm == Algorithm.DP_LLOYD and isinstance(proposal.features, str):
        wanted["domain"] = f"Public interval of all numbers in {quoted(proposal.features)}, such as 0,100"
    if given.algorithm == Algorithm.CENTRAL_TREE:
        wanted["radius"] = "Public largest distance of a row from the origin, such as 2.5"
    if given.algorithm == Algorithm.FEDDP_KMEANS:
        wanted["server_data"] = "Path of public rows"
    given.needs_width = False
    if isinstance(proposal.features, str) and given.algorithm != Algorithm.FEDDP_KMEANS:
        kind = plain_type(found.schema.field(proposal.features).type)
        given.needs_width = is_list(kind) and not pa.types.is_fixed_size_list(kind)
        text = f"Public number of numbers in every list of {quoted(proposal.features)}, such as 768"
        wanted |= {"width": text} if given.needs_width else {}
    if given.client_id is not None:
        wanted["client_rows"] = "Public typical number of rows of a client, such as 50"
    questions = [_Question(text, KINDS[name], flags, name) for name, text in wanted.items() if flags[name] is None]
    by_name = given.algorithm == Algorithm.DP_LLOYD and not isinstance(proposal.features, str)
    unknown = [name for name in given.columns if not by_name or name not in proposal.features]
    if unknown:
        features = (proposal.features,) if isinstance(proposal.features, str) else proposal.features
        raise ConfigError(
            f"--domain must name features of dp_lloyd, got {shown(unknown)}; features: {shown(features)}."
        )
    if by_name:
        usual = {name: [0.0, 1.0] if name in proposal.booleans else given.domain for name in proposal.features}
        columns, text = usual | given.columns, "Public interval of {}, such as 0,100"
        given.columns = columns
        open_ones = [name for name in columns if columns[name] is None]
        questions += [_Question(text.format(quoted(name)), KINDS["domain"], columns, name) for name in open_ones]
    return questions


def _without_constants(given: SimpleNamespace, proposal: Proposal) -> Proposal:
    """Removes columns that are constant according to the answers; private values aren't checked."""
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
    """Asks the questions; an empty answer, or too long a list, leaves them to be filled in later.

    Questions go to stdout, since the command silences stderr, where `input()` would write its prompt.
    """
    if len(questions) > MOST_QUESTIONS:
        _say(f"{len(questions)} bounds are missing: the job has a line for each.\n")
        return
    if questions:
        _say(
            "Bounds are public: answer from what you know without looking at the rows. If you do not know, then press "
            "Enter, and fill it in later. A column that is the same everywhere has equal ends, such as 5,5.\n"
        )
    for question in questions:
        while not _is_answered(question):
            pass


def _is_answered(question: _Question) -> bool:
    """Asks once; returns whether the answer was valid or empty."""
    line = _line(f"{question.text}: ")
    try:
        question.place[question.name] = question.kind(line) if line else None
    except ConfigError as error:
        _say(f"{error}\n")
        return False
    return True


def job_text(given: SimpleNamespace, proposal: Proposal, csv: Mapping[str, Any], missing: bool) -> str:
    """Formats a job as YAML with comments.

    Args:
      given: flags of `dapple init`, and answers.
      proposal: proposed columns of the private table.
      csv: settings of `data.csv`.
      missing: whether some lines say FILL IN.
    """
    unit = PrivacyUnit.RECORD if given.client_id is None else PrivacyUnit.CLIENT
    features = proposal.features if isinstance(proposal.features, str) else list(proposal.features)
    data: dict[str, Any] = {"path": given.data, "features": features}
    if given.client_id is not None:
        data["client_id"] = given.client_id
    if csv:
        data["csv"] = dict(csv)
    if given.on_invalid_rows is not None:
        data["on_invalid_rows"] = given.on_invalid_rows
    if given.missing:
        data["missing"] = {name: _missing(given, name, features) for name in features if name in given.missing}
    if is_open_list := isinstance(features, str) and given.needs_width:
        data["width"] = given.width
    lines = [
        *_HEAD,
        _NEXT.format(_TODO if missing else ""),
        *_yaml({"algorithm": given.algorithm}),
        *(["# width is the public number of numbers in every list." + _todo(given.width)] if is_open_list else []),
        *_yaml({"data": data}),
        *([_FILLS if given.columns else _FILLS + _NO_INDICATOR] if given.missing else []),
        *_left_out(proposal, unit, bool(given.columns)),
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


def _missing(given: SimpleNamespace, name: str, features: Collection[str]) -> dict[str, Any]:
    """Fill of a column; with separate bounds per column, adds a feature that marks missing values."""
    is_clear = bool(given.columns) and indicator_name(name) not in features
    return {"fill": given.missing[name], **({"indicator": True} if is_clear else {})}


def _bounds(given: SimpleNamespace, proposal: Proposal, unit: PrivacyUnit) -> Iterator[str]:
    clipping: dict[str, Any] = {}
    if given.algorithm == Algorithm.FEDDP_KMEANS:
        server = given.server_data
        yield f"# Public rows with the same columns, which you may publish.{_todo(server)}"
        yield from _yaml({"server_data": {"path": server}})
        clipping = {"norm": "server_radius"}
    if unit is PrivacyUnit.CLIENT:
        todo = _todo(given.client_rows)
        yield f"# The public typical number of rows of a client: less adds noise, more makes sizes too small.{todo}"
        clipping["client_rows"] = given.client_rows
    if clipping:
        yield from _yaml({"clipping": clipping})
    if given.algorithm == Algorithm.DP_LLOYD:
        yield from _domain(given, proposal)
    if given.algorithm == Algorithm.CENTRAL_TREE:
        yield f"# The public largest distance of a row from the origin; longer rows are shortened.{_todo(given.radius)}"
        yield from _yaml({"tree": {"radius": given.radius}})


def _domain(given: SimpleNamespace, proposal: Proposal) -> Iterator[str]:
    """Intervals of DP-Lloyd: one line per column, or one interval for the numbers of a list."""
    if isinstance(proposal.features, str):
        yield f"# The public interval of all numbers; a value outside is clipped to it.{_todo(given.domain)}"
        yield from _yaml({"dp_lloyd": {"domain": given.domain}})
        return
    yield "# The public interval of each column, in its unit; a value outside is clipped to it."
    if given.domain is not None:
        yield "# --domain without a name is that of all others: correct it where a column has another one."
    yield from ("dp_lloyd:", "  domain:")
    for name, ends in given.columns.items():
        yield f"    {quoted(name)}:" + ("  # FILL IN two numbers, such as [0, 100]." if ends is None else f" {ends}")


def _todo(value: object) -> str:
    return " FILL IN." if value is None else ""


def _left_out(proposal: Proposal, unit: PrivacyUnit, by_column: bool) -> list[str]:
    """Comments on columns that aren't features, with all names quoted."""
    lines = [f"# Left out: {quoted(name)}, {reason}." for name, reason in proposal.left_out.items()]
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
    lines += [f"# encode: {{{quoted(name)}: {{kind: one_hot, vocabulary: [...]}}}}" for name in texts]
    return lines + [_BESIDE_ENCODE] * bool(texts and by_column)


def _yaml(part: dict[str, Any]) -> Iterator[str]:
    for name, value in part.items():
        first, *rest = flow(value).split("\n")
        yield f"{name}: {first}"
        yield from (f"  {line}" for line in rest)
