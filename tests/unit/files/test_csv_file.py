"""CSV files: names from the first row, declared types, row numbers in messages, and never a field."""

import csv
import gzip
import io
import pickle
import traceback

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import DappleError, InputError, SchemaMismatchError
from dapple_dp.transforms.files.formats import csv_file
from dapple_dp.transforms.files.formats.csv_file import CsvFile, is_csv

NUMBERS = {"a": pa.float64(), "b": pa.float64()}
TELLTALE = "Zx-4711-secret"


def opened(content, name="rows.csv"):
    content = content if isinstance(content, bytes) else content.encode()
    return CsvFile(io.BytesIO(content), name)


def rows(content, types=None, name="rows.csv"):
    file = opened(content, name)
    tables = list(file.tables(NUMBERS if types is None else types))
    return [row for table in tables for row in table.to_pylist()]


def message(content, types=None, name="rows.csv"):
    with pytest.raises(InputError) as caught:
        rows(content, types, name)
    return str(caught.value)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few bytes, so that small files have many."""
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 40)
    monkeypatch.setattr(csv_file, "_MOST_ROW_BYTES", 200)


@pytest.mark.parametrize("content", ['a,b\n1,x\n2,"y\n3,z\n', 'a,b\n1,"', 'a,b\n1,"x""\n', 'a,b\n"1,x'])
def test_a_quotation_mark_that_is_never_closed_swallows_no_rows(content):
    with pytest.raises(InputError, match="must close every quotation mark, got an open one at the end"):
        rows(content, {"b": pa.string()})


@pytest.mark.parametrize("content", ['a,b\n1,"x\ny"', 'a,b\n1,x"', 'a,b\n1,"x"""', 'a,b\n1,""', 'a,b\n1,"x"\n'])
def test_one_that_is_closed_at_the_end_of_the_file_is_read(content):
    assert len(rows(content, {"b": pa.string()})) == 1


@pytest.mark.parametrize("name", ["a.csv", "A.CSV", "x/a.csv.gz", "a.tsv", "s3://b/a.tsv.gz"])
def test_files_are_csv_by_their_names(name):
    assert is_csv(name)


@pytest.mark.parametrize("name", ["a.parquet", "csv", "a.csv.parquet", "a.csv.bz2", "a.csv/part-0"])
def test_others_are_not(name):
    assert not is_csv(name)


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2\n3,4\n",
        "a,b\n1,2\n3,4",
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\r1,2\r3,4\r",
        "\ufeffa,b\n1,2\n3,4\n",
        '\ufeff"a","b"\n"1","2"\n"3","4"\n',
        "a;b\n1;2\n3;4\n",
        "a\tb\n1\t2\n3\t4\n",
        "a|b\n1|2\n3|4\n",
        "b,a,c\n2,1,x\n4,3,y\n",
        "a,b\n1,2\n\n3,4\n\n\n",
        "a,b\n 1 ,2\n1.5e0,4\n".replace("1.5e0", "3"),
        '"a";b;"c, d, e"\n1;2;x\n3;4;y\n',
        'a,b,c\n1,2,"x\ny, ""z"""\n3,4,\n',
        'a,b,c\n1,2,5" pipe\n3,4,6" pipe\n',
        "a,b,,\n1,2,,\n3,4,,\n",
    ],
)
def test_the_same_rows_however_they_are_written(content, small_blocks):
    assert rows(content) == [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]


def test_compressed_files_are_read():
    assert rows(gzip.compress(b"a,b\n1,2\n"), name="rows.csv.gz") == [{"a": 1.0, "b": 2.0}]
    both = gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n")
    assert len(rows(both, name="ROWS.CSV.GZ")) == 2


def test_empty_fields_are_nulls_in_quotes_or_not():
    types = {"a": pa.float64(), "t": pa.string()}
    assert rows('a,t\n,""\n"",\n1,NA\n', types) == [{"a": None, "t": None}] * 2 + [{"a": 1.0, "t": "NA"}]


def test_types_are_declared_and_not_inferred():
    types = {"id": pa.string(), "n": pa.int64(), "flag": pa.bool_()}
    assert rows("id,n,flag\n007,7,true\n", types) == [{"id": "007", "n": 7, "flag": True}]


def test_other_columns_may_hold_anything():
    assert rows(b"a,b,c\n1,2,\xff\xfe\n") == [{"a": 1.0, "b": 2.0}]


def test_the_schema_has_declared_types_and_strings():
    schema = opened("a,x\n1,2\n").schema(NUMBERS)
    assert schema == pa.schema([("a", pa.float64()), ("x", pa.string())])


def test_rows_are_counted_without_being_understood():
    file = opened(b'a,b\n\xff,"x\ny"\n,\n')
    assert file.count_rows() == 2
    assert file.count_rows() == 2
    assert opened(",,a\n1,2,\n,,\n").count_rows() == 2
    assert opened("a,b\n").count_rows() == opened("a,b").count_rows() == 0


@pytest.mark.parametrize("seed", range(20))
def test_blocks_end_where_rows_end(small_blocks, seed):
    """Against the writer of Python, on texts of quotes, delimiters and line breaks."""
    rng = np.random.default_rng(seed)
    letters = ["x", '"', ",", "\n", "\r\n", ";", "'", " ", '""']
    texts = ["t" + "".join(rng.choice(letters, rng.integers(0, 8))) for _ in range(60)]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(
        [("a", "t", "b"), *((i, text, i) for i, text in enumerate(texts))]
    )
    found = rows(written.getvalue(), NUMBERS | {"t": pa.string()})
    assert found == [{"a": float(i), "b": float(i), "t": text} for i, text in enumerate(texts)]


@pytest.mark.parametrize("seed", range(40))
def test_blocks_do_not_matter_whatever_a_text_is(monkeypatch, seed):
    """Quotation marks anywhere: what is read of many blocks is what Arrow reads of one, or both are refused."""
    rng = np.random.default_rng(seed)
    letters = ["x", "y", "z", ",", ",", "\n", "\n", '"', '""', ",,", " "]
    lines = "".join(rng.choice(letters, 400, p=[0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.02, 0.02, 0.03, 0.03]))
    content = "a,b,c\n" + "\n".join((line + ",,,").split(",", 3)[0] + ",q,r" for line in lines.split("\n")) + "\n"
    found = []
    for size in (1 << 20, 40):
        monkeypatch.setattr(csv_file, "_BLOCK_BYTES", size)
        try:
            found.append(rows(content, {"a": pa.string(), "c": pa.string()}))
        except InputError as error:
            found.append(str(error).partition(" in row")[0])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            f"a,b\n1,2\n{TELLTALE},3\n",
            "column 'a' of rows.csv must hold numbers, got something else in row 2 below the header; correct the row, "
            'or set the number format in the section csv, such as decimal: "," and null_values: [NA]; '
            "on_invalid_rows: drop leaves such rows out.",
        ),
        ('a,b\n1,2\n1,"47,11"\n', "column 'b' of rows.csv must hold numbers, got something else in row 2 below the"),
        (
            "a,b\n1,2\n4711.234,5,6\n",
            "rows.csv must have one field per column name (2) in every row, got another number in",
        ),
        ("a,b\n1,2\n4711.234\n", "got another number in row 2 below the header; correct the row, quote fields that"),
        ("a,b,a\n1,2,3\n", "rows.csv must have distinct column names, got 'a' several times; rename the others."),
        ("", "rows.csv must start with a row of column names, got none; add one."),
        ("\n\n", "rows.csv must start with a row of column names, got none"),
        (",,\n1,2,3\n", "rows.csv must start with a row of column names, got none"),
        (
            "c-1,47.11\nc-2,48\n",
            "got a first row with a number or a date; add a first row of names, with a letter",
        ),
        ("Ann,2026-01-05\n", "got a first row with a number or a date"),
        ("Ann,1e5\n", "got a first row with a number or a date"),
        ("Ann;47,11\n", "got a first row with a number or a date"),
        (
            b"a,b\xff\n1,2\n",
            "rows.csv must be a CSV file in UTF-8, got other bytes; save it in that encoding, or name",
        ),
        ("a,b\n1,2\n".encode("utf-16-le"), "rows.csv must be a CSV file in UTF-8, got other bytes"),
        (b"PAR1\0\0\0\0PAR1", "rows.csv must be a CSV file in UTF-8, got other bytes"),
    ],
)
def test_a_bad_file_is_one_sentence(content, expected):
    assert expected in message(content)


def test_text_of_other_encodings_is_one_sentence():
    found = message("a,t\n1,caf\xe9 4711\n".encode("latin-1"), {"t": pa.string()})
    assert found == (
        "column 't' of rows.csv must hold text in UTF-8, got something else in row 1 below the header; name the "
        "encoding in the section csv, such as encoding: cp1252."
    )


@pytest.mark.parametrize(("kind", "rule"), [(pa.int64(), "hold integers"), (pa.bool_(), "hold true or false")])
def test_categories_of_another_type_are_one_sentence(kind, rule):
    assert f"column 'a' of rows.csv must {rule}, got something else in row 2" in message(
        f"a,b\n1,2\n{TELLTALE},3\n", {"a": kind}
    )


def test_rows_are_numbered_over_blocks(small_blocks):
    good = "1,2\n" * 100
    assert "in row 101 below the header" in message(f"a,b\n{good}{TELLTALE},2\n")
    assert "in row 101 below the header" in message(f"a,b\n{good}1,2,3\n")
    assert "in row 102 below the header" in message(f"a,b,c\n{'1,2,3' + chr(10)}{good.replace(',2', ',2,x')}4711,2\n")


def test_a_row_without_an_end_does_not_fill_the_memory(small_blocks):
    assert (
        "rows.csv must have rows of at most 200 bytes, got a longer one; look for an unclosed quotation mark"
        in message('a,b\n1,"' + "2\n" * 400)
    )
    assert "rows of at most 200 bytes" in message("a,b\n" + "1" * 400 + ",2\n")


@pytest.mark.parametrize("cut", [5, 18, 25])
def test_a_broken_archive_is_one_sentence(cut):
    content = gzip.compress(b"a,b\n" + b"1,2\n" * 50)
    assert message(content[:cut], name="rows.csv.gz") == "rows.csv.gz must be readable; check the file or leave it out."
    assert message(b"a,b\n1,2\n", name="rows.csv.gz") == "rows.csv.gz must be readable; check the file or leave it out."


BAD = {
    "number": f"a,b\n1,2\n{TELLTALE},3\n",
    "number that looks like Arrow's words": f'a,b\n1,2\n"x\' In CSV column #1: Row #9: CSV {TELLTALE}",3\n',
    "ragged": f"a,b\n1,2\n1,2,{TELLTALE}\n",
    "ragged and long": f"a,b\n1,2\n1,2,{TELLTALE * 30}\n",
    "quoted": f'a,b\n1,"{TELLTALE}\n',
    "header": f"{TELLTALE},47.11\n1,2\n",
    "bytes": b"a,b\n1,2\n" + TELLTALE.encode() + b"\xff,2\n",
    "nul": f"a,b\n1,2\n{TELLTALE}\0,2\n",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
def test_no_error_holds_a_field(content):
    with pytest.raises(DappleError) as caught:
        rows(content)
    error = caught.value
    assert isinstance(error, InputError | SchemaMismatchError)
    assert (error.__cause__, error.__context__) == (None, None)
    everything = "".join(traceback.format_exception(error)) + repr(pickle.dumps(error)) + repr(vars(error))
    assert TELLTALE not in everything.replace(repr(content), "")
    assert str(error).count("\n") == 0
