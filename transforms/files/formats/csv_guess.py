"""Guesses the conventions of a CSV file from its first rows, for `dapple init`, whose job a person reads.

Readers never guess: a job states what was recognized here, or what the person chose if two readings are possible.
"""

import codecs
import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.data_section import DECIMALS, THOUSANDS, CsvConfig, CsvForm
from dapple_dp.transforms.files.formats import csv_cells
from dapple_dp.transforms.files.formats.csv_file import DELIMITERS, CsvFile, unpacked

_LOOKED_BYTES = 1 << 20
_WORDS = (
    *("NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "None", "none", "#N/A", "#NA", "<NA>", "(null)", "\\N"),
    *(".", "-", "?", "#NULL!", "missing", "unknown"),
)
"""Words that programs write for a missing number."""
_MOST_WRONG = 0.1
_FEW = 10
"""Below `_FEW` cells, all must be numbers; from there on, the share `_MOST_WRONG` may be something else."""
_DAY_FIRST = r"^\d{1,2}([./-])\d{1,2}[./-](?:\d{4}|\d{2})(?:[ T]\d{1,2}:\d{2}(?::\d{2})?)?$"
_COMMON = frozenset(
    "äöüÄÖÜßéèêëàâáãåæçîïíìñôóòõøœùûúÿÉÈÊËÀÂÁÃÅÆÇÎÏÍÑÔÓÕØŒÙÛÚ°µ²³½¼¾±·€£§«»“”„—…•\u00a0\u00d7\u2018\u2019\u2013"
)
_MOST_ODD = 0.1
"""Largest share, among non-ASCII characters, of those that Western texts in cp1252 seldom use."""


class Undecided(NamedTuple):
    """A question that the file leaves open.

    Attributes:
      flag: the flag of `dapple init` that answers it.
      why: the possible readings, as the middle of a sentence.
      answers: values of the flag, with what each means.
    """

    flag: str
    why: str
    answers: Mapping[str, str]


class Look(NamedTuple):
    """Columns of a table, from its first rows.

    Attributes:
      schema: names and types.
      rows: the first rows as text, in which ids are recognized.
      holes: columns of numbers that have a cell without a number.
      csv: settings of `data.csv` of a CSV file.
    """

    schema: pa.Schema
    rows: pa.Table
    holes: tuple[str, ...] = ()
    csv: Mapping[str, Any] = {}


def look(source: Any, name: str, given: CsvConfig) -> Look | Undecided:
    """Looks at the first megabyte of a file.

    Args:
      source: its bytes.
      name: name in messages.
      given: settings by a person; all others are recognized.

    Raises:
      InputError: if it isn't a CSV file.
    """
    encoding = given.encoding or _encoding(next(unpacked(source, name, _LOOKED_BYTES), b""))
    if isinstance(encoding, Undecided):
        return encoding
    form = CsvForm.of(given.model_copy(update={"encoding": encoding}))
    file = _delimited(source, name, form)
    if isinstance(file, Undecided):
        return file
    texts, arrow = file.first_texts(_LOOKED_BYTES, _WORDS)
    cells = {column: _Cells.of(texts[column]) for column in texts.column_names if column}
    open_ones = "decimal" not in given.model_fields_set
    readings = [reading for reading in _readings() if open_ones or reading.decimal == given.decimal]
    marks = _marks(cells, readings)
    if isinstance(marks, Undecided):
        return marks
    types = {column: _type(cell, marks, arrow.field(column).type) for column, cell in cells.items()}
    numbers = [column for column, kind in types.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)]
    words = {word for column in numbers for word in cells[column].words} | set(given.null_values)
    settings = {
        "delimiter": None if file.delimiter == "," else file.delimiter,
        "encoding": encoding,
        "decimal": None if marks.decimal == "." else marks.decimal,
        "thousands": next((mark for mark, signs in THOUSANDS.items() if signs == marks.thousands), None),
        "null_values": sorted(words),
        "quote": None if given.quote == '"' else given.quote,
    }
    return Look(
        schema=pa.schema([(column, types.get(column, pa.string())) for column in texts.column_names]),
        rows=texts,
        holes=tuple(column for column in numbers if cells[column].n_good(marks) < len(texts)),
        csv={setting: value for setting, value in settings.items() if value},
    )


class _Cells(NamedTuple):
    """Fields of a column.

    Attributes:
      filled: those that are neither empty nor a word for nothing.
      words: the words for nothing that occur.
    """

    filled: pa.ChunkedArray
    words: frozenset[str]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "_Cells":
        trimmed = pc.utf8_trim_whitespace(column.drop_null())
        trimmed = trimmed.filter(pc.not_equal(trimmed, ""))
        known = pc.is_in(trimmed, value_set=pa.array(_WORDS))
        return cls(trimmed.filter(pc.invert(known)), frozenset(trimmed.filter(known).unique().to_pylist()))

    def n_good(self, form: CsvForm) -> int:
        """Counts cells that are numbers."""
        return int(pc.sum(csv_cells.are_numbers(self.filled, form)).as_py() or 0)

    def match(self, pattern: str) -> int:
        """Counts cells that match."""
        return int(pc.sum(pc.match_substring_regex(self.filled, pattern)).as_py() or 0)

    def are_most(self, n_good: int) -> bool:
        """Returns whether this many cells are enough for a column of one kind."""
        n_filled = len(self.filled)
        return n_filled > 0 and n_good >= (n_filled if n_filled < _FEW else (1 - _MOST_WRONG) * n_filled)


def _readings() -> Iterator[CsvForm]:
    """Yields pairs of decimal mark and thousands mark that go together, the plainest first."""
    for signs, decimal in itertools.product(("", *THOUSANDS.values()), DECIMALS):
        if signs != decimal:
            yield CsvForm(decimal=decimal, thousands=signs)


def _marks(cells: Mapping[str, _Cells], readings: Sequence[CsvForm]) -> CsvForm | Undecided:
    """Returns the reading in which most cells of every column are numbers; the plainest if several agree."""
    counts = {
        column: good
        for column, cell in cells.items()
        if any(map(cell.are_most, good := [cell.n_good(reading) for reading in readings]))
    }
    best = [place for place in range(len(readings)) if all(good[place] == max(good) for good in counts.values())]
    decimals = {readings[place].decimal for place in best}
    marked = [column for column in counts if cells[column].match(r"^[-+]?\d+[.,]")]
    if best and (len(decimals) == 1 or not marked):
        return readings[best[0]]
    signs = {sign for sign in ".," if any(cells[column].match(re.escape(sign)) for column in marked)}
    names = ", ".join(f'"{column}"' for column in marked[:3]) + (" and others" if len(marked) > 3 else "")
    if len(signs) == 1:
        sign = signs.pop()
        point, comma = ("a little more than 1", "1234") if sign == "." else ("1234", "a little more than 1")
        readable = f"1{sign}234"
        why = f"the numbers in {names} can be read in two ways: {readable} may be 1234, or a little more than 1"
        meanings = (f"{readable} is {point}", f"{readable} is {comma}")
    else:
        why = f"the numbers in {names} can be read in two ways: with decimal points, or with decimal commas"
        meanings = ("with decimal points", "with decimal commas")
    return Undecided("--decimal", why, dict(zip(DECIMALS, meanings, strict=True)))


def _type(cells: _Cells, marks: CsvForm, arrow: pa.DataType) -> pa.DataType:
    """Returns the type of a column; a code with leading zeros is text."""
    if not len(cells.filled):
        return pa.null()
    if cells.match(csv_cells.FLAG) == len(cells.filled):
        return pa.bool_()
    if cells.are_most(cells.n_good(marks)):
        if cells.match(r"^\d+$") == len(cells.filled) and cells.match(r"^0\d"):
            return pa.string()
        if pa.types.is_temporal(arrow):
            return arrow
        whole = cells.match(r"[^-+\d]") == 0
        return pa.int64() if whole else pa.float64()
    if cells.are_most(cells.match(_DAY_FIRST)):
        return pa.date32()
    return arrow if pa.types.is_temporal(arrow) else pa.string()


def _encoding(raw: bytes) -> str | Undecided | None:
    """Guesses an encoding from the beginning of a text; None for UTF-8."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [raw[start::2].count(0) for start in (0, 1)]
    if max(zeros) > len(raw) // 8 and max(zeros) > 4 * min(zeros):
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        pass
    else:
        return None
    signs = [sign for sign in raw.decode("cp1252", errors="replace") if not sign.isascii()]
    if sum(sign not in _COMMON for sign in signs) <= _MOST_ODD * len(signs):
        return "cp1252"
    why = "its text is neither UTF-8 nor clearly that of Western Windows"
    answers = {"cp1252": "Windows", "mac-roman": "Macintosh", "cp850": "DOS", "cp1250": "Windows, Central Europe"}
    return Undecided("--encoding", why, answers)


def _delimited(source: Any, name: str, form: CsvForm) -> CsvFile | Undecided:
    """Opens the file with the delimiter that gives all first rows as many fields as there are names."""
    usual = CsvFile(source, name, form)
    if usual.is_given:
        return usual
    fits: list[CsvFile] = []
    for sign in DELIMITERS:
        try:
            file = CsvFile(source, name, dataclasses.replace(form, delimiter=sign.decode()))
            file.first_texts(_LOOKED_BYTES, ())
        except InputError:
            continue
        if len(file.names) > 1:
            fits.append(file)
    most = max((len(file.names) for file in fits), default=0)
    best = [file for file in fits if len(file.names) == most]
    if len(best) > 1:
        called = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
        words = [called[file.delimiter] for file in best]
        why = f"it can be read in two ways: with {words[0]} or with {words[1]} between fields"
        signs = ["tab" if file.delimiter == "\t" else file.delimiter for file in best]
        return Undecided("--delimiter", why, dict(zip(signs, words, strict=True)))
    return best[0] if best else usual
