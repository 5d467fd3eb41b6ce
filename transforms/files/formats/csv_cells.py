"""Cells of CSV files that Arrow can't convert: numbers with grouped digits, flags among numbers, mistakes."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from dapple_dp.schemas.tables.data_section import CsvForm

_TRUE = ("true", "wahr", "vrai", "vero", "verdadero", "verdadeiro", "waar")
_FALSE = ("false", "falsch", "faux", "falso", "onwaar")
"""Spellings by programs in English, German, French, Italian, Spanish, Portuguese and Dutch."""
FLAG = rf"(?i)^(?:{'|'.join((*_TRUE, *_FALSE))})$"
_LARGEST = str(2**63 - 1)


def can_read(kind: pa.DataType) -> bool:
    """Returns whether this module reads cells of a type."""
    return pa.types.is_float64(kind) or pa.types.is_int64(kind) or pa.types.is_boolean(kind)


def read(texts: pa.ChunkedArray, kind: pa.DataType, form: CsvForm) -> tuple[pa.ChunkedArray, int | None]:
    """Converts a column of text to a type.

    Numbers may have a sign, digits grouped in threes by the form's mark (or by commas as in India), and an exponent;
    true and false are 1 and 0.
    A cell of white space is null.

    Args:
      texts: strings; nulls stay null.
      kind: type of the column: float64, int64 or bool.
      form: of the file.

    Returns:
      The column, null where a cell is not of the type, and the index of the first such cell, None without any.
    """
    cells = pc.utf8_trim_whitespace(texts)
    empty = pc.is_in(cells, value_set=pa.array(["", *form.null_values], pa.string()))
    cells = pc.if_else(empty, pa.scalar(None, pa.string()), cells)
    good = _are(cells, kind, form)
    plain = _plain(cells, form)
    if pa.types.is_boolean(kind):
        plain = pc.utf8_lower(cells)
        values = pc.if_else(good, pc.is_in(plain, value_set=pa.array([*_TRUE, "1"])), pa.scalar(None, pa.bool_()))
    elif pa.types.is_int64(kind):
        whole = pc.replace_substring_regex(plain, r"\.0*$", "")
        good = pc.and_(good, _fit_int64(whole))
        values = pc.if_else(good, whole, pa.scalar(None, pa.string())).cast(pa.int64())
    else:
        flags = pc.match_substring_regex(plain, FLAG)
        digits = pc.if_else(pc.is_in(pc.utf8_lower(plain), value_set=pa.array(_TRUE)), "1", "0")
        plain = pc.if_else(flags, digits, plain)
        values = pc.if_else(good, plain, pa.scalar(None, pa.string())).cast(pa.float64())
    wrong = pc.index(pc.fill_null(good, True), pa.scalar(False)).as_py()
    return values, None if wrong < 0 else wrong


def are_numbers(cells: pa.ChunkedArray, form: CsvForm) -> pa.ChunkedArray:
    """Marks cells that are numbers as the form writes them; null for a null."""
    return pc.match_substring_regex(cells, _number(form))


def _are(cells: pa.ChunkedArray, kind: pa.DataType, form: CsvForm) -> pa.ChunkedArray:
    """Marks cells that are of the type; null for a null."""
    if pa.types.is_boolean(kind):
        return pc.or_(pc.match_substring_regex(cells, FLAG), pc.match_substring_regex(cells, "^[01]$"))
    if pa.types.is_int64(kind):
        mark = re.escape(form.decimal)
        return pc.match_substring_regex(cells, rf"^[-+]?(?:\d+{_grouped(form)})(?:{mark}0*)?$")
    return pc.or_(are_numbers(cells, form), pc.match_substring_regex(cells, FLAG))


def _number(form: CsvForm) -> str:
    mark = re.escape(form.decimal)
    exponent = r"(?:[eE][-+]?\d+)?"
    plain = rf"(?:\d+{_grouped(form)})(?:{mark}\d*)?{exponent}|{mark}\d+{exponent}"
    return rf"^[-+]?(?:{plain}|(?i:nan|inf|infinity))$"


def _grouped(form: CsvForm) -> str:
    """Returns a pattern for grouped digits: threes, without a leading zero; with commas also 1,23,456."""
    if not form.thousands:
        return ""
    indian = r"|[1-9]\d?(?:,\d{2})+,\d{3}" if form.thousands == "," else ""
    return rf"|[1-9]\d{{0,2}}(?:[{re.escape(form.thousands)}]\d{{3}})+{indian}"


def _fit_int64(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Marks integers (digits, with or without a sign) that fit int64."""
    digits = pc.replace_substring_regex(cells, r"^[-+]?0*(\d)", r"\1")
    length = pc.utf8_length(digits)
    largest = pc.and_(pc.equal(length, len(_LARGEST)), pc.less_equal(digits, _LARGEST))
    return pc.or_(pc.less(length, len(_LARGEST)), largest)


def _plain(cells: pa.ChunkedArray, form: CsvForm) -> pa.ChunkedArray:
    """Removes marks between thousands and replaces the decimal mark by a point."""
    if form.thousands:
        cells = pc.replace_substring_regex(cells, rf"[{re.escape(form.thousands)}]", "")
    return cells if form.decimal == "." else pc.replace_substring(cells, form.decimal, ".")
