"""Questions of Stack Overflow as FedDP-KMeans reads them: embeddings of one pair of topics, a client per user.

The folder holds `questions.parquet` with a row per question:

- `user_id`: string or integer, who asked it;
- `tags`: string, joined by `|`, as TensorFlow Federated's data set `stackoverflow` has them;
- `embedding`: list of floats of one length. Or leave it out, and put the embeddings into `embeddings.npy`, float, shape
  (number of questions, d), in the same order.

Which model makes the embeddings is free; the paper has 384 dimensions of a sentence embedding model (Reimers and
Gurevych, 2019). Only lengths and finite values are checked.

Source: Scott, Lampert, Saulpic (2025), Appendix G.1.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

PAIRS = {
    "machine-learning-math": (("machine-learning", "math"), 10_394),
    "github-pdf": (("github", "pdf"), 9_237),
    "facebook-hibernate": (("facebook", "hibernate"), 23_266),
    "plotting-cookies": (("plotting", "cookies"), 2_720),
}
"""Tags, and clients of the paper's data set."""
SERVER_PER_TAG, SERVER_OTHERS = 10, 1_000
QUESTIONS, EMBEDDINGS = "questions.parquet", "embeddings.npy"


def read(folder: Path) -> tuple[pa.Table, NDArray[np.float32]]:
    """Users and tags, and embeddings, shape (n, d).

    Raises:
      LookupError: if a file is not there.
      ValueError: if a column is missing, or embeddings have another number, several lengths, or values that are not
        finite.
    """
    path = folder / QUESTIONS
    if not path.exists():
        raise LookupError(f"--data must hold {QUESTIONS}, got none; see benchmarks/papers/question_rows.py.")
    table = pq.read_table(path)
    for name in ("user_id", "tags"):
        if name not in table.column_names:
            raise ValueError(f"{QUESTIONS} must have a column {name}, got {', '.join(table.column_names)}; add it.")
    rows = _embeddings(table, folder)
    if rows.ndim != 2 or len(rows) != len(table) or not np.isfinite(rows).all():
        raise ValueError(f"embeddings must be finite, one per question ({len(table)}), got shape {rows.shape}.")
    return table.select(["user_id", "tags"]), rows


def _embeddings(table: pa.Table, folder: Path) -> NDArray[np.float32]:
    """Returns the embeddings of the column, or of the other file."""
    if "embedding" in table.column_names:
        column = table["embedding"].combine_chunks()
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) != 1 or not lengths[0]:
            raise ValueError(f"{QUESTIONS} must have embeddings of one length, got {lengths}; embed all by one model.")
        return column.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(table), -1)
    if not (folder / EMBEDDINGS).exists():
        raise LookupError(f"--data must hold {EMBEDDINGS} beside {QUESTIONS} without embeddings; embed the questions.")
    return np.asarray(np.load(folder / EMBEDDINGS, allow_pickle=False), dtype=np.float32)


def write_lake(folder: Path, name: str, lake: Path) -> int:
    """Writes clients by user and the server's questions; returns the number of clients.

    The server gets 10 questions of each tag, which no client keeps, and 1,000 of neither.

    Args:
      folder: of the files.
      name: of `PAIRS`.
      lake: a new folder.
    """
    table, rows = read(folder)
    tags = [set(each.split("|")) for each in table["tags"].to_pylist()]
    users = np.array(table["user_id"].cast(pa.string()).to_pylist())
    holds = [np.array([tag in each for each in tags]) for tag in PAIRS[name][0]]
    inside = holds[0] | holds[1]
    rng = np.random.default_rng(0)
    given = np.unique(np.concatenate([rng.permutation(np.flatnonzero(each))[:SERVER_PER_TAG] for each in holds]))
    others = rng.permutation(np.flatnonzero(~inside))[:SERVER_OTHERS]
    kept = np.setdiff1d(np.flatnonzero(inside), given)
    kept = kept[np.argsort(users[kept], kind="stable")]
    (lake / "clients").mkdir(parents=True)
    owners = np.unique(users[kept], return_inverse=True)[1]
    clients = _lists(rows[kept], client_id=pa.array(owners.astype(np.int64)))
    pq.write_table(clients, lake / "clients" / "part-0.parquet", row_group_size=10_000)
    pq.write_table(_lists(rows[np.concatenate([given, others])]), lake / "server.parquet")
    return int(owners.max() + 1)


def _lists(rows: NDArray[np.float32], **columns: pa.Array) -> pa.Table:
    """Column `x` of lists beside others."""
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])} | columns)


def write_synthetic(folder: Path, n_rows: int = 600, n_dims: int = 8, seed: int = 0) -> None:
    """Drawn questions with the columns of the real file, to see that the loader runs."""
    rng = np.random.default_rng(seed)
    known = [*(tag for pair, _ in PAIRS.values() for tag in pair), "python", "java"]
    tags = ["|".join(rng.choice(known, 2, replace=False)) for _ in range(n_rows)]
    folder.mkdir(parents=True, exist_ok=True)
    users = pa.array([f"user-{index}" for index in rng.integers(0, n_rows // 5, n_rows)])
    pq.write_table(pa.table({"user_id": users, "tags": tags}), folder / QUESTIONS)
    np.save(folder / EMBEDDINGS, rng.normal(size=(n_rows, n_dims)).astype(np.float32))
