"""Features of CSV files that `init` recognizes, that it leaves to a person, and which columns are numbers."""

import io

import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.data_section import CsvConfig
from dapple_dp.transforms.files.formats import csv_guess
from dapple_dp.transforms.files.formats.csv_guess import Look, Undecided


def looked(content, name="rows.csv", **given):
    content = content if isinstance(content, bytes) else content.encode()
    return csv_guess.look(io.BytesIO(content), name, CsvConfig(**given))


def column(cells, **given):
    """The look at a column of these cells beside a whole number, in a file of semicolons."""
    return looked("a;x\n" + "".join(f"{index};{cell}\n" for index, cell in enumerate(cells)), **given)


def test_types_are_guessed_for_people():
    text = "n,x,when,at,day,german,who,flag,nothing,zip\n"
    text += "1,0.5,2026-01-05,2026-01-05 10:00:00,12:30,31.12.2025,me,true,,01067\n"
    assert [str(kind) for kind in looked(text).schema.types] == [
        "int64",
        "double",
        "date32[day]",
        "timestamp[s]",
        "time32[s]",
        "date32[day]",
        "string",
        "bool",
        "null",
        "string",
    ]
    for words in ("WAHR;FALSCH", "vrai;FAUX"):
        assert looked(f"a;b\n{words}\n").schema.types == [pa.bool_(), pa.bool_()]
    assert looked("a,b\n").schema.types == [pa.null(), pa.null()]
    assert looked("a,b").schema.types == [pa.null(), pa.null()]


def test_types_are_guessed_of_the_first_rows_alone(monkeypatch):
    monkeypatch.setattr(csv_guess, "_LOOKED_BYTES", 40)
    assert looked("a,b\n" + "1,2\n" * 50 + "x,y\n").schema.types == [pa.int64(), pa.int64()]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_the_last_line_counts_whatever_ends_it(end):
    line = end or "\n"
    assert looked(f"a,b,c{line}1,2,3{line}4,5,ʤ{end}").schema.types == [pa.int64(), pa.int64(), pa.string()]


@pytest.mark.parametrize(
    ("cells", "recognized"),
    [
        (["1,5", "2,25"], {"decimal": ","}),
        (["1.5", "2.25"], {}),
        (["1.234,5", "7"], {"decimal": ",", "thousands": "."}),
        (["1,234.5", "7"], {"thousands": ","}),
        (["1.234.567", "5"], {"decimal": ",", "thousands": "."}),
        (["1,234,567", "5"], {"thousands": ","}),
        (["1,23,456", "5"], {"thousands": ","}),
        (["0.123", "1.234"], {}),
        (["1.2345", "1.234"], {}),
        (["1234.567", "1.234"], {}),
        (["-1 234,5", "12 345 678"], {"decimal": ",", "thousands": "space"}),
        (["1\u00a0234", "5"], {"thousands": "space"}),
        (["1\u202f234,5", "5"], {"decimal": ",", "thousands": "space"}),
        (["1'234.5", "5"], {"thousands": "'"}),
        (["1\u2019234", "5"], {"thousands": "'"}),
        (["NA", "5", "#N/A"], {"null_values": ["#N/A", "NA"]}),
        ([".", "1.5", "-"], {"null_values": ["-", "."]}),
        (["\\N", "1,5", "NULL"], {"decimal": ",", "null_values": ["NULL", "\\N"]}),
        (["1e5", "5e-3", "+1.5E+7"], {}),
        (['"1,5"', '"2"'], {"decimal": ","}),
    ],
)
def test_marks_are_recognized(cells, recognized):
    found = column(cells)
    assert isinstance(found, Look), found
    assert found.csv == {"delimiter": ";"} | recognized
    assert pa.types.is_floating(found.schema.field("x").type) or pa.types.is_integer(found.schema.field("x").type)


@pytest.mark.parametrize(
    ("cells", "point", "comma"),
    [
        (["1.234", "5.678"], "1.234 is a little more than 1", "1.234 is 1234"),
        (["1.234", "5", "NA"], "1.234 is a little more than 1", "1.234 is 1234"),
        (["1,234", "5,678"], "1,234 is 1234", "1,234 is a little more than 1"),
        (["1,5", "1.25"] + ["7"] * 50, "with decimal points", "with decimal commas"),
    ],
)
def test_two_readings_are_left_to_a_person(cells, point, comma):
    found = column(cells)
    assert isinstance(found, Undecided)
    assert (found.flag, dict(found.answers)) == ("--decimal", {".": point, ",": comma})
    assert '"x"' in found.why
    for decimal in ".,":
        assert isinstance(column(cells, decimal=decimal), Look)


def test_a_person_decides_for_the_whole_file():
    assert column(["1.234"], decimal=".").csv == {"delimiter": ";"}
    assert column(["1.234"], decimal=",").csv == {"delimiter": ";", "decimal": ",", "thousands": "."}
    assert column(["1,234"], decimal=".").csv == {"delimiter": ";", "thousands": ","}
    assert column(["1,234"], decimal=",").csv == {"delimiter": ";", "decimal": ","}


def test_another_column_decides_what_one_leaves_open():
    found = looked("a;b\n1.234;0,5\n5.678;1,25\n")
    assert found.csv == {"delimiter": ";", "decimal": ",", "thousands": "."}
    assert looked("a;b\n1.234;0.5\n5.678;1.25\n").csv == {"delimiter": ";"}


def test_columns_that_contradict_each_other_are_left_to_a_person():
    assert isinstance(looked("a;b\n1,5;1.5\n2,25;0.25\n"), Undecided)


def test_no_value_of_the_file_is_in_a_question():
    for cells in (["7.391", "8.442"], ["7,391", "8,442"], ["7,39", "8.5"] + ["1"] * 40):
        found = column(cells)
        assert not any(cell in repr(found) for cell in cells if len(cell) > 1)


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2\n", ";"),
        ('"Alter, Jahre";"Größe, cm";x\n1,5;2;3\n', ";"),
        ("Alter, Jahre;Größe, cm;x\n1;2,5;3\n", ";"),
        ("a\tb\n1,5\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("sep=;\na;b\n1,5;2\n", ";"),
        ('"sep=\t"\r\na\tb\r\n1\t2\r\n', "\t"),
        ("sep=^\na^b\n1^2\n", "^"),
        ("a\n1\n", ","),
    ],
)
def test_delimiters_are_recognized(content, delimiter):
    found = looked(content)
    assert found.csv.get("delimiter", ",") == delimiter
    assert pa.string() not in found.schema.types


def test_delimiters_that_fit_alike_are_left_to_a_person():
    found = looked("a,b;c\n1,2;3\n4,5;6\n")
    assert (found.flag, dict(found.answers)) == ("--delimiter", {",": "commas", ";": "semicolons"})
    assert looked("a,b;c\n1,2;3\n4,5;6\n", delimiter=";").schema.names == ["a,b", "c"]


@pytest.mark.parametrize(
    ("encoding", "recognized"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("cp1252", "cp1252"),
        ("iso-8859-1", "cp1252"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
    ],
)
def test_encodings_are_recognized(encoding, recognized):
    found = looked("Größe,Prénom\n171,Zoë\n172,Ñandú\n".encode(encoding))
    assert (found.csv.get("encoding"), found.schema.names) == (recognized, ["Größe", "Prénom"])


@pytest.mark.parametrize("encoding", ["cp850", "mac-roman"])
def test_a_text_that_is_not_clearly_of_one_encoding_is_left_to_a_person(encoding):
    content = "Größe,Straße\n171,Fünfhöfe\n".encode(encoding)
    assert looked(content).flag == "--encoding"
    assert looked(content, encoding=encoding).schema.names == ["Größe", "Straße"]


def test_holes_are_cells_that_are_no_numbers():
    content = "a,b,c,d\n" + "1,2,3,x\n" * 30 + ",NA,<0.5,\n"
    assert looked(content).holes == ("a", "b", "c")
    assert looked("a,b\n1,2\n").holes == ()


def test_a_bad_file_is_refused_as_by_a_job():
    for content in ("", "1,2\n3,4\n", "a,a\n1,2\n", "a,b\n1,2,3\n", b"PAR1\0\0\0PAR1"):
        with pytest.raises(InputError, match=r"rows\.csv must"):
            looked(content)
