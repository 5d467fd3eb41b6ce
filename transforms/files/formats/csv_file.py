"""A CSV file: names of columns in its first row, and rows whose types their reader declares.

Names are public, everything else is private. Arrow quotes the field that it cannot read, so none of its messages
leaves this module, as the cause or the context of an error neither.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv as pa_csv

from schemas.errors import InputError, SchemaMismatchError

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_BLOCK_BYTES = 1 << 22
_MOST_ROW_BYTES = 1 << 24
_GUESSED_BYTES = 1 << 20
_DELIMITERS = (b",", b";", b"\t", b"|")
_MARK = b"\xef\xbb\xbf"
"""With which some programs begin a text in UTF-8."""
_QUOTED_NAME = rb'(?<![^,;\t|\xbf])"(?:[^"]|"")*+"'
_ROWS = rb'(?:(?:[^"\n]++|(?<![^DELIMITER\n])"(?:[^"]++|"")*+"|(?<=[^DELIMITER\n])")*+\n)*+'
"""Whole rows. A quotation mark opens a field only where one begins, as for Arrow."""
_HEADER = re.compile(rb"(?:" + _MARK + rb")?((?:" + _QUOTED_NAME + rb"|[^\r\n])*+)(?:\r\n|\r|\n)?")
_NOT_CONVERTED = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+)")
_RAGGED = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected \d+ columns, got \d+")
_RULES: Mapping[str, tuple[str, str]] = {
    "string": ("hold text in UTF-8", "save the file as UTF-8"),
    "int64": ("hold integers", "correct the row, or leave the field empty if it is unknown"),
    "bool": ("hold true or false", "correct the row, or leave the field empty if it is unknown"),
    "double": (
        "hold numbers",
        "write them like 1234.5, with a point for a decimal comma and nothing between thousands, and leave the field "
        "empty if it is unknown",
    ),
}


def is_csv(name: str) -> bool:
    """Whether a file is CSV by its name."""
    return name.lower().endswith(ENDINGS)


class CsvFile:
    """An open CSV file.

    A field is null if it is empty, in quotes or not. Lines without a letter are no rows.

    Args:
      source: its bytes.
      name: what messages call it; says whether it is compressed.

    Raises:
      InputError: if it does not begin with names of columns.
    """

    def __init__(self, source: Any, name: str):
        self._source, self._name = source, name
        found = _HEADER.match(next(self._raw(), b""))
        self._start, header = found.end(), found[1]  # type: ignore[union-attr, index]
        outside = re.sub(_QUOTED_NAME, b"", header)
        self._delimiter = max(_DELIMITERS, key=outside.count)
        self._rows = re.compile(_ROWS.replace(b"DELIMITER", re.escape(self._delimiter)))
        self.names = self._checked_names(header)

    def schema(self, types: Mapping[str, pa.DataType]) -> pa.Schema:
        """All columns; those without a declared type are strings."""
        return pa.schema([(name, types.get(name, pa.string())) for name in self.names])

    def guessed_schema(self) -> pa.Schema:
        """All columns, with the types that the first rows have; true and false are text."""
        block = next(self._blocks(_GUESSED_BYTES), b"")
        found = self._parsed(block, None, 0).schema
        texts = (pa.bool_(), pa.binary())
        return pa.schema([field.with_type(pa.string()) if field.type in texts else field for field in found])

    def count_rows(self) -> int:
        """Number of rows; reads the whole file, some megabytes at a time."""
        return sum(table.num_rows for table in self.tables(self.some_column))

    @property
    def some_column(self) -> dict[str, pa.DataType]:
        """A column as any row has it, for `tables`."""
        return {next(filter(None, self.names)): pa.binary()}

    def tables(self, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """Rows in the order of the file, some megabytes at a time.

        Args:
          types: of the columns to read, which the file has.

        Raises:
          InputError: if a row has more or fewer fields than the header, or a field is not of its type, naming column
            and row and not the field.
        """
        first = 0
        for block in self._blocks():
            table = self._parsed(block, types, first)
            first += table.num_rows
            yield table

    def _checked_names(self, header: bytes) -> tuple[str, ...]:
        """Names of the columns; refuses what looks like a row, since names are shown."""
        names = self._names(header)
        if not any(names):
            self._refuse("begin with the names of its columns", "none", "write them into the first row")
        if any(map(_is_number, names)):
            self._refuse(
                "begin with the names of its columns",
                "a first row with a number or a date",
                "write names into the first row, with a letter in each",
            )
        twice = next((name for name in names if name and names.count(name) > 1), None)
        if twice is not None:
            self._refuse("have every column once", f"{twice!r} several times", "rename the others")
        return names

    def _names(self, header: bytes) -> tuple[str, ...]:
        if len(header) >= _GUESSED_BYTES or b"\0" in header:
            header = b"\xff"
        try:
            return tuple(next(csv.reader([header.decode()], delimiter=self._delimiter.decode()), ()))
        except (UnicodeDecodeError, csv.Error):
            pass
        return self._refuse("be a CSV file in UTF-8", "other bytes", "save it as CSV in UTF-8")

    def _raw(self, size: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """The file in parts, none of them compressed."""
        try:
            self._source.seek(0)
            file = gzip.GzipFile(fileobj=self._source) if self._name.lower().endswith(".gz") else self._source
            while part := bytes(file.read(size)):
                yield part
            return
        except (OSError, EOFError, zlib.error, pa.ArrowException):
            pass
        self._refuse("be readable", "", "check the file or leave it out")

    def _blocks(self, size: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """Whole rows without the header, about `size` bytes at a time; a line break in quotes ends no row."""
        rest, start = b"", self._start
        for part in self._raw(size):
            rest, start = rest + part[start:], 0
            end = self._last_end(rest)
            if not end and len(rest) > _MOST_ROW_BYTES:
                self._refuse(
                    f"have rows of at most {_MOST_ROW_BYTES} bytes",
                    "a longer one",
                    "look for a quotation mark that is never closed, and end rows by a line feed",
                )
            if end:
                yield rest[:end]
                rest = rest[end:]
        if rest and self._last_end(rest + b"\n") <= len(rest):
            self._refuse(
                "close every quotation mark",
                "one that is open at the end, so that rows would be parts of a field",
                "correct the row",
            )
        if rest:
            yield rest

    def _last_end(self, block: bytes) -> int:
        """Where the last whole row of a block ends that begins with a row; 0 if none does."""
        if b'"' not in block:
            return block.rfind(b"\n") + 1
        return self._rows.match(block).end()  # type: ignore[union-attr]

    def _parsed(self, block: bytes, types: Mapping[str, pa.DataType] | None, first: int) -> pa.Table:
        """Rows of a block of whole rows, `first` rows before them; types of None read all columns and guess."""
        if not block.strip(b"\r\n"):
            kind = dict.fromkeys(self.names, pa.null()) if types is None else types
            return pa.schema(list(kind.items())).empty_table()
        try:
            return pa_csv.read_csv(
                pa.BufferReader(block),
                pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=self.names),
                pa_csv.ParseOptions(delimiter=self._delimiter.decode(), newlines_in_values=True),
                pa_csv.ConvertOptions(
                    column_types=types,
                    include_columns=None if types is None else list(types),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except (pa.ArrowException, ValueError) as error:
            converted, ragged = _NOT_CONVERTED.match(str(error)), _RAGGED.match(str(error))
        return self._refuse_rows(converted, ragged, first)

    def _refuse_rows(self, converted: re.Match[str] | None, ragged: re.Match[str] | None, first: int) -> NoReturn:
        """Names the row, and the column if it is one field; of Arrow's message numbers are taken only."""
        if converted is not None:
            rule, remedy = _RULES.get(converted[3], _RULES["string"])
            place = _place(converted[2], first)
            name = self.names[int(converted[1])]
            raise SchemaMismatchError(
                f"column {name!r} of {self._name} must {rule}, got something else{place}; {remedy}."
            )
        if ragged is not None:
            self._refuse(
                f"have as many fields in every row as names, {len(self.names)}",
                "another number" + _place(ragged[1], first),
                "correct the row, or quote fields with delimiters in them",
            )
        self._refuse("be a CSV file", "something else", "check the file or leave it out")

    def _refuse(self, rule: str, got: str, remedy: str) -> NoReturn:
        raise InputError(f"{self._name} must {rule}{got and ', got '}{got}; {remedy}.")


def _place(row: str | None, first: int) -> str:
    """Which row a message of Arrow is about, from 1."""
    return "" if row is None else f" in row {first + int(row)} below the header"


def _is_number(name: str) -> bool:
    """Whether what should be a name is a number or a date: then it is the field of a person's row."""
    if not any(letter.isdigit() for letter in name):
        return False
    try:
        float(name)
    except ValueError:
        return not any(letter.isalpha() for letter in name)
    return True
