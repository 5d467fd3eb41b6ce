"""A CSV file: names of columns in its first row, and rows whose types their reader declares.

Names are public, everything else is private. Arrow quotes fields that it can't read, so none of its messages
leaves this module, not even as the cause or context of an error.
"""

import codecs
import csv
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from dapple_dp.schemas.errors import InputError, SchemaMismatchError
from dapple_dp.schemas.tables.data_section import CsvForm
from dapple_dp.transforms.files.formats import csv_cells

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_BLOCK_BYTES = 1 << 22
_MOST_ROW_BYTES = 1 << 24
_MOST_HEADER_BYTES = 1 << 20
DELIMITERS = (b",", b";", b"\t", b"|")
_MARK = b"\xef\xbb\xbf"
"""Byte order mark at the beginning of some files in UTF-8."""
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_QUOTED_NAME = rb"(?<![^,;\t|\xbfDELIMITER])QUOTE(?:[^QUOTE]|QUOTEQUOTE)*+QUOTE"
_ROWS = (
    rb"(?:(?:[^QUOTEEND]++|(?<![^DELIMITEREND])QUOTE(?:[^QUOTE]++|QUOTEQUOTE)*+QUOTE|(?<=[^DELIMITEREND])QUOTE)*+END)*+"
)
"""Pattern of whole rows. A quotation mark opens a field only at its beginning, as for Arrow."""
_SEPARATOR = rb'(?:"?sep=([!-~\t ])"?(?:\r\n|\r|\n))?'
"""Optional line before the names that tells Excel the delimiter."""
_HEADER = rb"(?:" + _MARK + rb")?" + _SEPARATOR + rb"((?:QUOTED|[^\r\n])*+)(\r\n|\r|\n)?"
_NOT_CONVERTED = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+)")
_RAGGED = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected \d+ columns, got \d+")
_RULES: Mapping[str, tuple[str, str]] = {
    "string": ("hold text in {}", "name the encoding in the section csv, such as encoding: cp1252"),
    "int64": ("hold integers", "correct the row, or leave the field empty if it is unknown"),
    "bool": ("hold true or false", "correct the row, or leave the field empty if it is unknown"),
    "double": (
        "hold numbers",
        'correct the row, or set the number format in the section csv, such as decimal: "," and null_values: [NA]; '
        "on_invalid_rows: drop leaves such rows out",
    ),
}


def is_csv(name: str) -> bool:
    """Returns whether a file is CSV by its name."""
    return name.lower().endswith(ENDINGS)


class CsvFile:
    """An open CSV file.

    A field is null if it is empty, in quotes or not, or one of the form's words. Empty lines are skipped.

    Args:
      source: its bytes.
      name: name in messages; its ending shows whether the file is compressed.
      form: delimiter, encoding and other conventions of the file.

    Raises:
      InputError: if it doesn't begin with names of columns.
    """

    def __init__(self, source: Any, name: str, form: CsvForm | None = None):
        self._source, self._name = source, name
        self.form = CsvForm() if form is None else form
        self._quote = re.escape(self.form.quote.encode())
        quoted = _QUOTED_NAME.replace(b"QUOTE", self._quote) if self._quote else b"(?!)"
        given = b"" if self.form.delimiter is None else self.form.delimiter.encode()
        quoted = quoted.replace(b"DELIMITER", re.escape(given))
        # A first part of any length is enough: the rest of a longer header doesn't matter.
        found = re.match(_HEADER.replace(b"QUOTED", quoted), next(self._raw(), b""))
        assert found is not None  # it matches nothing, too
        self._start, header = found.end(), found[2]
        outside = re.sub(quoted, b"", header)
        self._delimiter = given or found[1] or max(DELIMITERS, key=outside.count)
        self._is_given = bool(given or found[1])
        self._end = b"\r" if found[3] == b"\r" else b"\n"
        rows = _ROWS.replace(b"DELIMITER", re.escape(self._delimiter)).replace(b"END", re.escape(self._end))
        self._rows = re.compile(rows.replace(b"QUOTE", self._quote)) if self._quote else None
        self.names = self._checked_names(header)

    @property
    def is_given(self) -> bool:
        """True if the form or the file's first line states the delimiter."""
        return self._is_given

    @property
    def delimiter(self) -> str:
        """Character between fields."""
        return self._delimiter.decode()

    def schema(self, types: Mapping[str, pa.DataType]) -> pa.Schema:
        """Returns the schema of all columns; those without a declared type are strings."""
        return pa.schema([(name, types.get(name, pa.string())) for name in self.names])

    def count_rows(self) -> int:
        """Counts rows; reads the whole file, some megabytes at a time."""
        return sum(self._arrow_table(block, self.some_column, first=0).num_rows for block in self._blocks())

    @property
    def some_column(self) -> dict[str, pa.DataType]:
        """One column that every row has, as an argument for `tables`."""
        return {next(filter(None, self.names)): pa.binary()}

    def tables(self, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """Yields rows in the order of the file, some megabytes at a time.

        Args:
          types: of the columns to read, which the file has.

        Raises:
          InputError: if a row has more or fewer fields than the header, or a field isn't of its type (unless the form
            makes it null). The message names column and row, not the field.
        """
        first = 0
        for block in self._blocks():
            table = self._parsed(block, types, first)
            first += table.num_rows
            yield table

    def first_texts(self, size: int, words: Sequence[str]) -> tuple[pa.Table, pa.Schema]:
        """Reads the fields of the first rows as text, to be judged by a person.

        Args:
          size: approximate number of bytes to look at.
          words: words that count as null when types are guessed.

        Returns:
          All columns as strings, only empty fields null, and the types that Arrow would give them.
        """
        block = b""
        for part in self._blocks(size):
            # Without a line feed at its end, the rest of a file is a separate block.
            block += _clean(part)
            if len(block) > size // 4:
                break
        texts = self._arrow_table(block, dict.fromkeys(self.names, pa.string()), 0, words=())
        return texts, self._arrow_table(block, None, 0, words).schema

    def _checked_names(self, header: bytes) -> tuple[str, ...]:
        """Returns the names of the columns; refuses a first row that looks like data, since names are shown."""
        names = self._names(header)
        if not any(names):
            self._refuse("start with a row of column names", "none", "add one")
        if any(map(_is_number, names)):
            self._refuse(
                "start with a row of column names",
                "a first row with a number or a date",
                "add a first row of names, with a letter in each",
            )
        twice = next((name for name in names if name and names.count(name) > 1), None)
        if twice is not None:
            self._refuse("have distinct column names", f"{twice!r} several times", "rename the others")
        return names

    def _names(self, header: bytes) -> tuple[str, ...]:
        if len(header) >= _MOST_HEADER_BYTES or b"\0" in header:
            header = b"\xff"
        quoting = {"quotechar": self.form.quote} if self.form.quote else {"quoting": csv.QUOTE_NONE}
        try:
            return tuple(next(csv.reader([header.decode()], delimiter=self.delimiter, **quoting), ()))
        except (UnicodeDecodeError, csv.Error):
            pass
        return self._refuse_encoding()

    def _raw(self, size: int | None = None) -> Iterator[bytes]:
        """Yields the file in parts, in UTF-8 if it is text in its encoding."""
        parts = unpacked(self._source, self._name, _BLOCK_BYTES if size is None else size)
        first = next(parts, b"")
        wide = self.form.encoding is None and first.startswith(_WIDE_MARKS)
        encoding = "utf-16" if wide else self.form.encoding or "utf-8"
        if encoding == "utf-8":
            # Passed on as it is, since columns that no job names may hold anything.
            yield from filter(None, (first,))
            yield from parts
            return
        # A byte that a code page lacks stays itself. It is invalid in UTF-8, so reading its column raises an error.
        decoder = codecs.getincrementaldecoder(encoding)("strict" if "utf-16" in encoding else "surrogateescape")
        try:
            mark = "\ufeff"
            for part in itertools.chain((first,), parts):
                yield decoder.decode(part).removeprefix(mark).encode(errors="surrogateescape")
                mark = ""
            yield decoder.decode(b"", final=True).encode(errors="surrogateescape")
            return
        except UnicodeError:
            pass
        self._refuse_encoding()

    def _blocks(self, size: int | None = None) -> Iterator[bytes]:
        """Yields whole rows below the header, about `size` bytes at a time; line breaks in quotes don't end a row."""
        rest, start = b"", self._start
        for part in self._raw(size):
            rest, start = rest + part[start:], max(start - len(part), 0)
            end = self._last_end(rest)
            if not end and len(rest) > _MOST_ROW_BYTES:
                self._refuse(
                    f"have rows of at most {_MOST_ROW_BYTES} bytes",
                    "a longer one",
                    "look for an unclosed quotation mark, and end rows with a line feed",
                )
            if end:
                yield rest[:end]
                rest = rest[end:]
        if rest and self._last_end(rest + self._end) <= len(rest):
            self._refuse(
                "close every quotation mark",
                "an open one at the end of the file",
                "correct the row",
            )
        if rest:
            yield rest

    def _last_end(self, block: bytes) -> int:
        """Returns the end of the last whole row of a block that begins with a row; 0 without a whole row."""
        if self._rows is None or self.form.quote.encode() not in block:
            return block.rfind(self._end) + 1
        return self._rows.match(block).end()  # type: ignore[union-attr]

    def _parsed(self, block: bytes, types: Mapping[str, pa.DataType], first: int) -> pa.Table:
        """Parses a block of whole rows that follows `first` rows."""
        if not self.form.thousands:
            converted = self._converted(block, types, first)
            if converted is not None:
                return converted
        return self._parsed_as_text(block, types, first)

    def _converted(self, block: bytes, types: Mapping[str, pa.DataType], first: int) -> pa.Table | None:
        """Converts a block by Arrow; None if a number or a flag has to be read as text."""
        failed = self._try_arrow(block, types, self.form.null_values)
        if isinstance(failed, pa.Table):
            return failed
        converted, ragged = failed
        if converted is not None and csv_cells.can_read(types[self.names[int(converted[1])]]):
            return None
        return self._refuse_rows(converted, ragged, first)

    def _parsed_as_text(self, block: bytes, types: Mapping[str, pa.DataType], first: int) -> pa.Table:
        """Parses a block, reading its numbers and flags from text cell by cell."""
        cells = {name: kind for name, kind in types.items() if csv_cells.can_read(kind)}
        others = {name: kind for name, kind in types.items() if name not in cells}
        texts = self._arrow_table(_clean(block), dict.fromkeys(cells, pa.string()), first)
        rest = self._arrow_table(block, others, first) if others else None
        columns = {}
        for name, kind in types.items():
            if name not in cells:
                columns[name] = rest[name]  # type: ignore[index]
                continue
            columns[name], wrong = csv_cells.read(texts[name], kind, self.form)
            if wrong is not None and not self.form.lenient:
                self._refuse_field(name, str(kind), _place(str(wrong + 1), first))
        return pa.table(columns)

    def _arrow_table(
        self,
        block: bytes,
        types: Mapping[str, pa.DataType] | None,
        first: int,
        words: Sequence[str] | None = None,
    ) -> pa.Table:
        """Reads a block by Arrow, or raises the error about it; arguments as in `_parsed` and `_try_arrow`."""
        result = self._try_arrow(block, types, self.form.null_values if words is None else words)
        if isinstance(result, pa.Table):
            return result
        converted, ragged = result
        return self._refuse_rows(converted, ragged, first)

    def _try_arrow(
        self, block: bytes, types: Mapping[str, pa.DataType] | None, words: Sequence[str]
    ) -> pa.Table | tuple[re.Match[str] | None, re.Match[str] | None]:
        """Reads a block by Arrow; on failure returns the parts of its message that contain no field.

        Args:
          block: whole rows.
          types: of the columns to read; None reads all columns and guesses.
          words: words that count as null, besides the empty field.
        """
        if not block.strip(b"\r\n"):
            kind = dict.fromkeys(self.names, pa.null()) if types is None else types
            return pa.schema(list(kind.items())).empty_table()
        import pyarrow.csv as pa_csv

        try:
            return pa_csv.read_csv(
                pa.BufferReader(block),
                pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=self.names),
                pa_csv.ParseOptions(
                    delimiter=self.delimiter, quote_char=self.form.quote or False, newlines_in_values=True
                ),
                pa_csv.ConvertOptions(
                    column_types=types,
                    include_columns=None if types is None else list(types),
                    null_values=["", *words],
                    strings_can_be_null=True,
                    decimal_point=self.form.decimal,
                ),
            )
        except (pa.ArrowException, ValueError) as error:
            return _NOT_CONVERTED.match(str(error)), _RAGGED.match(str(error))

    def _refuse_rows(self, converted: re.Match[str] | None, ragged: re.Match[str] | None, first: int) -> NoReturn:
        """Names the row, and the column if one field is at fault; only numbers are taken from Arrow's message."""
        if converted is not None:
            self._refuse_field(self.names[int(converted[1])], converted[3], _place(converted[2], first))
        if ragged is not None:
            self._refuse(
                f"have one field per column name ({len(self.names)}) in every row",
                "another number" + _place(ragged[1], first),
                "correct the row, quote fields that contain the delimiter, or set the delimiter in the section csv",
            )
        self._refuse("be a CSV file", "something else", "check the file or leave it out")

    def _refuse_field(self, name: str, kind: str, place: str) -> NoReturn:
        rule, remedy = _RULES.get(kind, _RULES["string"])
        encoding = (self.form.encoding or "UTF-8").upper()
        raise SchemaMismatchError(
            f"column {name!r} of {self._name} must {rule.format(encoding)}, got something else{place}; {remedy}."
        )

    def _refuse_encoding(self) -> NoReturn:
        encoding = (self.form.encoding or "UTF-8").upper()
        self._refuse(
            f"be a CSV file in {encoding}",
            "other bytes",
            "save it in that encoding, or name the encoding in the section csv, such as encoding: cp1252",
        )

    def _refuse(self, rule: str, got: str, remedy: str) -> NoReturn:
        raise _refusal(self._name, rule, got, remedy)


def unpacked(source: Any, name: str, size: int) -> Iterator[bytes]:
    """Yields a file in parts of `size` bytes, decompressed; arguments as in `CsvFile`."""
    try:
        source.seek(0)
        file = gzip.GzipFile(fileobj=source) if name.lower().endswith(".gz") else source
        while part := bytes(file.read(size)):
            yield part
        return
    except (OSError, EOFError, zlib.error, pa.ArrowException):
        pass
    raise _refusal(name, "be readable", "", "check the file or leave it out")


def _refusal(name: str, rule: str, got: str, remedy: str) -> InputError:
    return InputError(f"{name} must {rule}{got and ', got '}{got}; {remedy}.")


def _clean(block: bytes) -> bytes:
    """Replaces bytes that aren't UTF-8 by a replacement character."""
    return block.decode(errors="replace").encode()


def _place(row: str | None, first: int) -> str:
    """Returns the number, from 1, of the row that a message of Arrow is about."""
    return "" if row is None else f" in row {first + int(row)} below the header"


def _is_number(name: str) -> bool:
    """Returns whether a name is a number or a date, and so probably a field of someone's row."""
    if not any(letter.isdigit() for letter in name):
        return False
    try:
        float(name)
    except ValueError:
        return not any(letter.isalpha() for letter in name)
    return True
