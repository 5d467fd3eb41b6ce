"""Rows of the US census as FedDP-KMeans reads them: task ACSIncome of folktables, one employment class, one-hot.

Put the person files of one year into a folder: `psam_p01.csv` and so on, one per state (for 2018, 1-Year:
`csv_p*.zip` of the public use microdata sample of the American Community Survey, census.gov). Fifty states and Puerto
Rico are the 51 clients. Rows are those of the filter of ACSIncome: older than 16, income above 100, at work, with a
weight.

Features are one-hot columns of every code that some row of the files has. The paper has 819 columns and a radius of
2.65, the root of 7: so seven columns are coded, and age, hours and the class itself, by which rows are chosen, are not.

Source: Ding, Hardt, Miller, Schmidt (2021), "Retiring Adult"; Scott, Lampert, Saulpic (2025), Appendix G.1.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

CLASSES = {"not-for-profit": (2, 127_491), "federal": (5, 44_720), "self-employed": (6, 98_475)}
"""Code of the class (COW), and rows of the paper's data set."""
CODED = ("SCHL", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P")
"""Columns that become one-hot; RELP is RELSHIPP from 2019 on."""
FILTERED = ("AGEP", "COW", "WKHP", "PINCP", "PWGTP", "ST")
PUBLISHED_FEATURES, PUBLISHED_STATES = 819, 51
WASHINGTON = 11
"""Code of the District of Columbia, which folktables leaves out."""
SERVER_INSIDE, SERVER_OUTSIDE = 20, 1_000
FILES = "psam_p*.csv"


def read(folder: Path) -> pa.Table:
    """Rows of the filter, all columns as integers; a missing code is 0.

    Raises:
      LookupError: if the folder has no such file.
      ValueError: if a file lacks a column.
    """
    paths = sorted(folder.glob(FILES))
    if not paths:
        raise LookupError(
            f"--data must hold files {FILES} of the census, got none; see benchmarks/papers/census_rows.py."
        )
    return pa.concat_tables([_read(path) for path in paths])


def _read(path: Path) -> pa.Table:
    """Rows of one state."""
    wanted = [*CODED, *FILTERED]
    convert = pa.csv.ConvertOptions(
        include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=True
    )
    try:
        table = pa.csv.read_csv(path, convert_options=convert)
    except (KeyError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path.name} must hold the columns {', '.join(wanted)}; take a person file.") from error
    table = pa.table({name: _integers(table[name]) for name in wanted})
    kept = pc.and_(pc.greater(table["AGEP"], 16), pc.greater(table["PINCP"], 100))
    kept = pc.and_(kept, pc.and_(pc.greater(table["WKHP"], 0), pc.greater_equal(table["PWGTP"], 1)))
    return table.filter(pc.and_(kept, pc.not_equal(table["ST"], WASHINGTON)))


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Codes such as `0010`, ` 7` or `2.0` as integers; 0 for blanks."""
    trimmed = pc.utf8_trim_whitespace(column)
    known = pc.if_else(pc.equal(pc.utf8_length(trimmed), 0), None, trimmed)
    return pc.fill_null(pc.cast(pc.cast(known, pa.float64()), pa.int64()), 0)


def one_hot(table: pa.Table) -> NDArray[np.float32]:
    """Shape (n, number of codes): a column per code that some row has."""
    blocks = []
    for name in CODED:
        codes, places = np.unique(table[name].to_numpy(), return_inverse=True)
        block = np.zeros((len(places), len(codes)), dtype=np.float32)
        block[np.arange(len(places)), places] = 1.0
        blocks.append(block)
    return np.hstack(blocks)


def write_lake(folder: Path, name: str, lake: Path) -> int:
    """Writes clients by state, and 20 server rows of the class beside 1,000 others; returns the number of client rows.

    Args:
      folder: of the files.
      name: of `CLASSES`.
      lake: a new folder.
    """
    table = read(folder)
    rows, inside = one_hot(table), table["COW"].to_numpy() == CLASSES[name][0]
    rng = np.random.default_rng(0)
    ours, others = rng.permutation(np.flatnonzero(inside)), rng.permutation(np.flatnonzero(~inside))
    clients = ours[SERVER_INSIDE:]
    clients = clients[np.argsort(table["ST"].to_numpy()[clients], kind="stable")]
    (lake / "clients").mkdir(parents=True)
    states = table["ST"].take(clients)
    pq.write_table(_lists(rows[clients], client_id=states), lake / "clients" / "part-0.parquet", row_group_size=10_000)
    server = np.concatenate([ours[:SERVER_INSIDE], others[:SERVER_OUTSIDE]])
    pq.write_table(_lists(rows[server]), lake / "server.parquet")
    return len(clients)


def _lists(rows: NDArray[np.float32], **columns: pa.ChunkedArray) -> pa.Table:
    """Column `x` of lists beside others."""
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])} | columns)


def write_synthetic(folder: Path, n_rows: int = 300, seed: int = 0) -> None:
    """Two states of drawn rows with the columns of the real files, to see that the loader runs."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for state in (1, 2):
        columns = {name: rng.integers(1, 6, n_rows) for name in CODED}
        columns |= {"AGEP": rng.integers(10, 90, n_rows), "COW": rng.integers(1, 8, n_rows)}
        columns |= {"WKHP": rng.integers(0, 60, n_rows), "PINCP": rng.integers(0, 90_000, n_rows)}
        columns |= {
            "PWGTP": rng.integers(1, 90, n_rows),
            "ST": np.full(n_rows, state),
            "PUMA": rng.integers(1, 9, n_rows),
        }
        pa.csv.write_csv(pa.table(columns), folder / f"psam_p{state:02d}.csv")
