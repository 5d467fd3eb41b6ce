"""The same customers as sixteen programs write them to CSV, byte by byte, and what `dapple init` recognizes."""

import dataclasses
import pathlib
from typing import Any

import numpy as np

N_ROWS = 240
NAMES = ("Größe", "Umsatz", "Alter")
DOMAINS = {"Größe": "140,210", "Umsatz": "0,100000", "Alter": "0,120"}
_GROUPS = np.array([[158.0, 12_000.0, 25], [172.0, 48_000.0, 45], [190.0, 86_000.0, 70]])
_TOWNS = ("Zürich", "Köln, Süd; Nord", 'Bern "Mitte"')


def customers() -> np.ndarray:
    """Size with one decimal, sales with two, age without; shape (240, 3)."""
    rng = np.random.default_rng(7)
    rows = _GROUPS[np.arange(N_ROWS) % 3] + rng.normal(size=(N_ROWS, 3)) * [1.5, 1500, 3]
    return np.column_stack([np.round(rows[:, 0], 1), np.round(rows[:, 1], 2), np.round(rows[:, 2])])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """Dialect of CSV that a program writes.

    Attributes:
      called: the program.
      recognized: settings of `data.csv`.
      missing: what it writes for a missing number; None for a file without any.
    """

    called: str
    recognized: dict[str, Any]
    sep: str = ","
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    mark: bytes = b""
    end: str = "\n"
    first: str = ""
    missing: str | None = None
    row_names: bool = False
    quotes_texts: bool = False
    last_end: bool = True

    def number(self, value: float, digits: int) -> str:
        """A number as it is written."""
        text = f"{value:,.{digits}f}".replace(",", "\0").replace(".", self.decimal)
        return self.field(text.replace("\0", self.thousands))

    def field(self, text: str, *, is_text: bool = False) -> str:
        """A field, in quotes where it must be, or where texts are."""
        if (is_text and self.quotes_texts) or any(sign in text for sign in (self.sep, '"')):
            return '"' + text.replace('"', '""') + '"'
        return text

    def content(self) -> bytes:
        """The file; one with missing numbers has three more rows, which have no number each."""
        header = [self.field(name, is_text=True) for name in ("Kunde", *NAMES, "Ort")]
        lines = [["" if not self.quotes_texts else '""', *header] if self.row_names else header]
        for index, (size, sales, age) in enumerate(customers()):
            numbers = [self.number(size, 1), self.number(sales, 2), self.number(age, 0)]
            if self.missing is not None and index in (3, 90, 200):
                gap = [self.missing if place == index % 3 else each for place, each in enumerate(numbers)]
                lines.append(self._line(index, gap))
            lines.append(self._line(index, numbers))
        text = self.first + self.end.join(self.sep.join(line) for line in lines)
        return self.mark + (text + self.end * self.last_end).encode(self.encoding)

    def _line(self, index: int, numbers: list[str]) -> list[str]:
        fields = [self.field(f"K-{index:04d}", is_text=True), *numbers, self.field(_TOWNS[index % 3], is_text=True)]
        return [f'"{index + 1}"', *fields] if self.row_names else fields


_BOM = b"\xef\xbb\xbf"
_COMMA = {"delimiter": ";", "decimal": ","}
DIALECTS = {
    "pandas": Dialect(called="pandas, `to_csv`", missing="", recognized={}),
    "pandas2": Dialect(
        called='pandas, `to_csv(sep=";", decimal=",")`', sep=";", decimal=",", missing="", recognized=_COMMA
    ),
    "r": Dialect(
        called="R, `write.csv`",
        missing="NA",
        quotes_texts=True,
        row_names=True,
        recognized={"null_values": ["NA"]},
    ),
    "r2": Dialect(
        called="R, `write.csv2`",
        sep=";",
        decimal=",",
        missing="NA",
        quotes_texts=True,
        row_names=True,
        recognized=_COMMA | {"null_values": ["NA"]},
    ),
    "sas": Dialect(
        called="SAS, missing numbers as a point", end="\r\n", missing=".", recognized={"null_values": ["."]}
    ),
    "excel-de": Dialect(
        called="Excel in German",
        sep=";",
        decimal=",",
        thousands=".",
        encoding="cp1252",
        end="\r\n",
        recognized={"delimiter": ";", "encoding": "cp1252", "decimal": ",", "thousands": "."},
    ),
    "excel-de-utf8": Dialect(
        called="Excel in German, CSV UTF-8",
        sep=";",
        decimal=",",
        thousands=".",
        mark=_BOM,
        end="\r\n",
        recognized=_COMMA | {"thousands": "."},
    ),
    "excel-fr": Dialect(
        called="Excel in French",
        sep=";",
        decimal=",",
        thousands="\u00a0",
        encoding="cp1252",
        end="\r\n",
        recognized={"delimiter": ";", "encoding": "cp1252", "decimal": ",", "thousands": "space"},
    ),
    "excel-fr-utf8": Dialect(
        called="Excel in French, CSV UTF-8",
        sep=";",
        decimal=",",
        thousands="\u202f",
        mark=_BOM,
        end="\r\n",
        recognized=_COMMA | {"thousands": "space"},
    ),
    "excel-ch": Dialect(
        called="Excel in Swiss German",
        sep=";",
        thousands="'",
        encoding="cp1252",
        end="\r\n",
        recognized={"delimiter": ";", "encoding": "cp1252", "thousands": "'"},
    ),
    "excel-ch-utf8": Dialect(
        called="Excel in Swiss German, CSV UTF-8",
        sep=";",
        thousands="\u2019",
        mark=_BOM,
        end="\r\n",
        recognized={"delimiter": ";", "thousands": "'"},
    ),
    "excel-unicode": Dialect(
        called="Excel in German, Unicode text",
        sep="\t",
        decimal=",",
        encoding="utf-16-le",
        mark=b"\xff\xfe",
        end="\r\n",
        recognized={"delimiter": "\t", "encoding": "utf-16", "decimal": ","},
    ),
    "macintosh": Dialect(
        called="Macintosh, UTF-16 and CR",
        encoding="utf-16-be",
        mark=b"\xfe\xff",
        end="\r",
        recognized={"encoding": "utf-16"},
    ),
    "excel-sep": Dialect(
        called="Excel, first line `sep=;`",
        sep=";",
        decimal=",",
        thousands=" ",
        mark=_BOM,
        end="\r\n",
        first="sep=;\r\n",
        recognized=_COMMA | {"thousands": "space"},
    ),
    "excel-us": Dialect(
        called="Excel in English", thousands=",", end="\r\n", quotes_texts=True, recognized={"thousands": ","}
    ),
    "sql-server": Dialect(
        called="SQL Server, no line feed at the end",
        end="\r\n",
        missing="NULL",
        last_end=False,
        recognized={"null_values": ["NULL"]},
    ),
}


def write(folder: pathlib.Path, name: str) -> pathlib.Path:
    """A file of a dialect."""
    path = folder / f"{name}.csv"
    path.write_bytes(DIALECTS[name].content())
    return path
