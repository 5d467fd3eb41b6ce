"""Cells that are read from their text: as Arrow reads numbers, and what it does not."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import ConfigError, InputError, SchemaMismatchError
from dapple_dp.schemas.tables.data_section import CsvConfig, CsvForm, DataConfig
from dapple_dp.transforms.files.formats import csv_cells, csv_file
from dapple_dp.transforms.files.formats.csv_file import CsvFile


def cells(texts, kind=None, **form):
    values, wrong = csv_cells.read(pa.chunked_array([texts], pa.string()), kind or pa.float64(), CsvForm(**form))
    return values.to_pylist(), wrong


def rows(content, types, name="rows.csv", **form):
    content = content if isinstance(content, bytes) else content.encode()
    tables = list(CsvFile(io.BytesIO(content), name, CsvForm(**form)).tables(types))
    return [row for table in tables for row in table.to_pylist()]


def test_numbers_are_those_that_arrow_reads():
    rng = np.random.default_rng(0)
    texts = [repr(float(value)) for value in rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200)]
    texts += [" 1 ", "1.", ".5", "+1.5", "-0", "1e5", "1E+5", "inf", "-Infinity", "1e400", "1e-400", "007"]
    content = "a,b\n" + "".join(f"{text},1\n" for text in texts)
    arrow = [row["a"] for row in rows(content, {"a": pa.float64()})]
    assert cells(texts) == (arrow, None)
    found, _ = cells(["nan", "NaN", "-nan"])
    assert all(value != value for value in found)


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("1.234,5", {"decimal": ",", "thousands": "."}, 1234.5),
        ("-1.234.567", {"decimal": ",", "thousands": "."}, -1234567.0),
        ("12,5", {"decimal": ",", "thousands": "."}, 12.5),
        ("1234,5", {"decimal": ",", "thousands": "."}, 1234.5),
        (",5", {"decimal": ","}, 0.5),
        ("1\u202f234", {"thousands": " \u00a0\u2009\u202f"}, 1234.0),
        ("true", {}, 1.0),
        ("FALSE", {}, 0.0),
        ("WAHR", {"decimal": ","}, 1.0),
        ("Falsch", {}, 0.0),
        ("VRAI", {}, 1.0),
        ("FAUX", {"thousands": " \u00a0\u2009\u202f"}, 0.0),
        ("VERDADERO", {}, 1.0),
        ("FALSO", {}, 0.0),
        ("ONWAAR", {}, 0.0),
        ("1,23,456", {"thousands": ","}, 123456.0),
        ("-12,34,56,789.5", {"thousands": ","}, -123456789.5),
        ("1,234,567", {"thousands": ","}, 1234567.0),
        ("  ", {}, None),
        ("NA", {"null_values": ("NA",)}, None),
        (" NA ", {"null_values": ("NA",)}, None),
    ],
)
def test_cells_are_read_by_their_form(text, form, value):
    assert cells([text], **form) == ([value], None)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("12.34", {"decimal": ",", "thousands": "."}),
        ("1.2345", {"decimal": ",", "thousands": "."}),
        ("0.123", {"decimal": ",", "thousands": "."}),
        ("1.23.456", {"decimal": ",", "thousands": "."}),
        ("1,23,456", {}),
        ("1,23", {"thousands": ","}),
        ("123,45,678", {"thousands": ","}),
        ("0,12,345", {"thousands": ","}),
        ("1,23,4567", {"thousands": ","}),
        ("1'23'456", {"thousands": "'\u2019"}),
        ("wahrscheinlich", {}),
        ("vraie", {}),
        ("1,234", {}),
        ("1.5", {"decimal": ","}),
        ("1 234", {}),
        ("1_000", {}),
        ("0x1p3", {}),
        ("--1", {}),
        ("<0.5", {}),
        ("NA", {}),
        ("yes", {}),
        ("1;2", {}),
        ("٣", {}),
    ],
)
def test_others_are_no_numbers(text, form):
    assert cells(["1", text], **form) == ([1.0, None], 1)


def test_integers_and_flags():
    largest = 2**63 - 1
    found = cells(["1", "2.0", "-3", str(largest), str(largest + 1), "1.5", None, "0" * 30 + "7"], pa.int64())
    assert found == ([1, 2, -3, largest, None, None, None, 7], 4)
    assert cells(["1", "TRUE", "false", "0", "x", ""], pa.bool_()) == ([True, True, False, False, None, None], 4)
    assert cells(["WAHR", "FALSCH", "vrai", "Faux", "10"], pa.bool_()) == ([True, False, True, False, None], 4)
    assert cells(["1,23,456", "12,34,567.0"], pa.int64(), thousands=",") == ([123456, 1234567], None)


def test_a_mistake_is_named_or_left_out_and_never_shown():
    content = "a,t\n1,x\noops,y\n\xff,z\n3,\xe4\n".encode("latin-1")
    with pytest.raises(SchemaMismatchError, match=r"column 'a' of rows\.csv must hold numbers, .* in row 2 below"):
        rows(content, {"a": pa.float64()})
    assert [row["a"] for row in rows(content, {"a": pa.float64()}, lenient=True)] == [1.0, None, None, 3.0]
    # A text that is no UTF-8 is a mistake of the file, not of a row.
    with pytest.raises(SchemaMismatchError, match=r"column 't' .* must hold text in UTF-8"):
        rows(content, {"a": pa.float64(), "t": pa.string()}, lenient=True)


def test_a_row_with_another_number_of_fields_is_no_row_to_leave_out():
    with pytest.raises(InputError, match="one field per column name"):
        rows("a,b\n1,2\n1,2,3\n", {"a": pa.float64()}, lenient=True)


def test_one_bad_cell_changes_no_other(monkeypatch):
    """Blocks with a cell that Arrow refuses are read as text: the others must be the same to the last bit."""
    values = np.random.default_rng(1).normal(size=300)
    lines = [f"{float(value)!r},{index},t{index}\n" for index, value in enumerate(values)]
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 500)
    types = {"a": pa.float64(), "n": pa.int64(), "t": pa.string()}
    plain = rows("a,n,t\n" + "".join(lines), types)
    lines.insert(150, "x,1,t\n")
    found = rows("a,n,t\n" + "".join(lines), types, lenient=True)
    assert found[:150] + found[151:] == plain
    assert found[150] == {"a": None, "n": 1, "t": "t"}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("quoted", [True, False])
def test_large_files_are_read_in_small_blocks(monkeypatch, end, encoding, quoted):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(csv_file, "_MOST_ROW_BYTES", 400)
    mark = '"' if quoted else ""
    lines = ["Größe;t", *(f"{index},5;{mark}Zoë{mark}" for index in range(200))]
    content = end.join(lines).encode(encoding)
    given = {"encoding": encoding} if encoding in ("cp1252", "utf-16-be") else {}
    types = {"Größe": pa.float64(), "t": pa.string()}
    expected = [{"Größe": index + 0.5, "t": "Zoë"} for index in range(200)]
    assert rows(content, types, decimal=",", **given) == expected
    assert rows(gzip.compress(content), types, "rows.csv.gz", decimal=",", **given) == expected
    assert CsvFile(io.BytesIO(content), "rows.csv", CsvForm(**given)).count_rows() == 200


def test_a_first_line_for_excel_names_the_delimiter():
    for first in ("sep=;\n", '"sep=;"\r\n', "\ufeffsep=;\r"):
        assert rows(f"{first}a;b\n1;2\n", {"b": pa.float64()}) == [{"b": 2.0}]
    # It is a name where a section says what the delimiter is, and it names another one: the section counts.
    assert rows("sep=;\na|b\n1|2\n", {"b": pa.float64()}, delimiter="|") == [{"b": 2.0}]


@pytest.mark.parametrize(("quote", "text"), [("'", "'x,\"y'"), ("", '5" pipe')])
def test_other_marks_around_fields(quote, text):
    content = f"a,t\n1,{text}\n2,z\n"
    expected = text.strip("'") if quote else text
    assert [row["t"] for row in rows(content, {"t": pa.string()}, quote=quote)] == [expected, "z"]


def test_words_are_missing_values_of_ids_too():
    found = rows("id,a\nNULL,1\n7,2\n", {"id": pa.string(), "a": pa.float64()}, null_values=("NULL",))
    assert found == [{"id": None, "a": 1.0}, {"id": "7", "a": 2.0}]


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
@pytest.mark.parametrize("cut", [1, 3])
def test_text_that_ends_in_a_letter_or_is_of_another_encoding_is_one_sentence(encoding, cut):
    content = "a,t\n1,xé".encode("utf-16")[:-cut]
    with pytest.raises(InputError) as caught:
        rows(content, {"a": pa.float64()}, encoding=encoding)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert "name the encoding in the section csv" in str(caught.value)


def test_a_byte_that_a_code_page_lacks_matters_where_it_is_read():
    content = b"a,t\n1,\x81\n2,\xe4\n"
    assert len(rows(content, {"a": pa.float64()}, encoding="cp1252")) == 2
    with pytest.raises(SchemaMismatchError, match=r"'t' of rows\.csv must hold text in CP1252"):
        rows(content, {"t": pa.string()}, encoding="cp1252")


def test_a_form_goes_through_its_text():
    for form in (
        CsvForm(),
        CsvForm(lenient=True),
        CsvForm(delimiter="\t", thousands="'\u2019", null_values=("a", "b")),
    ):
        assert CsvForm.of_text(form.text) == form
    assert CsvForm.of(None).text == CsvForm.of(CsvConfig()).text == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"delimiter": ";;"}, "csv.delimiter must be one character between fields"),
        ({"delimiter": "x"}, "csv.delimiter must be one character between fields"),
        ({"delimiter": "\n"}, "csv.delimiter must be one character between fields"),
        ({"encoding": "rot13"}, "csv.encoding must be the name of a text encoding"),
        ({"encoding": "unicode_escape"}, "csv.encoding must be the name of a text encoding"),
        ({"decimal": ";"}, "csv.decimal must be"),
        ({"decimal": ",", "thousands": ","}, "thousands and decimal must differ"),
        ({"thousands": "_"}, "csv.thousands must be"),
        ({"null_values": "NA"}, "csv.null_values must be a list of words"),
        ({"null_values": ["a\nb"]}, "csv.null_values must be a list of words"),
        ({"quote": "|"}, "csv.quote must be"),
        ({"sep": ";"}, "csv.sep"),
    ],
)
def test_wrong_settings_are_one_sentence(settings, said):
    with pytest.raises(ConfigError) as caught:
        DataConfig(path="p", features="x", csv=settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value).replace("\\n", "")


@pytest.mark.parametrize(
    ("given", "name"),
    [("UTF8", "utf-8"), ("latin-1", "iso-8859-1"), ("Windows-1252", "cp1252"), ("UTF-16LE", "utf-16-le")],
)
def test_encodings_have_one_name(given, name):
    assert CsvConfig(encoding=given).encoding == name


def test_a_tab_may_be_written_out():
    assert CsvConfig(delimiter="tab").delimiter == CsvConfig(delimiter="\t").delimiter == "\t"
