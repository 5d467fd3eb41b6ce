"""Loaders of data that the papers have and this project has not: schema, filter, lakes, refusals."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from benchmarks.papers import census_rows, feddp_shares, question_rows

CODES = {name: ["1", "2", "1", "1", "2", "1"] for name in census_rows.CODED}
PEOPLE = CODES | {
    "AGEP": ["40", "16", "40", "40", "40", "40"],
    "COW": ["5", "5", "5.0", "2", " 5", "5"],
    "WKHP": ["40", "40", "40", "40", "40", ""],
    "PINCP": ["900", "900", "900", "900", "900", "900"],
    "PWGTP": ["1", "1", "1", "1", "1", "1"],
    "ST": ["1", "1", "1", "1", "1", "1"],
    "OCCP": ["0010", "0010", "0020", " 20", "", "0010"],
}


def write_people(folder, name="psam_p01.csv", **changed):
    folder.mkdir(parents=True, exist_ok=True)
    pa.csv.write_csv(pa.table(PEOPLE | changed), folder / name)


def test_rows_of_the_census_pass_the_filter_of_the_task(tmp_path):
    write_people(tmp_path)
    write_people(tmp_path, "psam_p11.csv", ST=["11"] * 6)
    found = census_rows.read(tmp_path)
    assert found["COW"].to_pylist() == [5, 5, 2, 5]  # the second is too young, the last works no hours, 11 is no state
    assert found["OCCP"].to_pylist() == [10, 20, 20, 0]


def test_every_code_is_a_column(tmp_path):
    write_people(tmp_path)
    found = census_rows.one_hot(census_rows.read(tmp_path))
    assert found.shape == (4, 6 * 2 + 3)
    np.testing.assert_array_equal(found.sum(axis=1), np.full(4, len(census_rows.CODED)))
    assert np.linalg.norm(found[0]) == pytest.approx(2.65, abs=0.005)  # the radius of the paper's Table 1


def test_a_folder_without_the_census_and_a_file_without_a_column_are_refused(tmp_path):
    with pytest.raises(LookupError, match=r"--data must hold files psam_p\*\.csv"):
        census_rows.read(tmp_path)
    pa.csv.write_csv(pa.table({"AGEP": ["1"]}), tmp_path / "psam_p01.csv")
    with pytest.raises(ValueError, match=r"psam_p01\.csv must hold the columns SCHL"):
        census_rows.read(tmp_path)


def test_a_lake_of_the_census_has_clients_by_state_and_mostly_other_classes_at_the_server(tmp_path):
    census_rows.write_synthetic(tmp_path / "data", n_rows=2_000)
    n_clients = census_rows.write_lake(tmp_path / "data", "federal", tmp_path / "lake-acs-federal")
    clients = pq.read_table(tmp_path / "lake-acs-federal" / "clients")
    assert len(clients) == n_clients
    owners = clients["client_id"].to_numpy()
    assert sorted(set(owners)) == [1, 2]
    assert (np.diff(owners) >= 0).all()
    read = feddp_shares.read_lake(tmp_path / "lake-acs-federal")
    assert read.unit == "record"
    assert read.server.shape == (1_020, read.block.points.shape[1])


def test_questions_become_users_of_one_pair_of_topics(tmp_path):
    tags = ["github|git"] * 12 + ["pdf"] * 12 + ["python"] * 5
    users = ["a", "b", "c"] * 8 + ["z"] * 5
    rows = np.arange(29 * 3, dtype=np.float32).reshape(29, 3)
    pq.write_table(pa.table({"user_id": users, "tags": tags}), tmp_path / question_rows.QUESTIONS)
    np.save(tmp_path / question_rows.EMBEDDINGS, rows)
    n_clients = question_rows.write_lake(tmp_path, "github-pdf", tmp_path / "lake-questions")
    read = feddp_shares.read_lake(tmp_path / "lake-questions")
    assert read.unit == "client"
    assert len(read.block.points) == 4  # ten of each tag are the server's
    assert len(read.server) == 20 + 5
    assert read.block.offsets[-1] == 4
    assert n_clients == len(read.block.offsets) - 1
    together = np.vstack([read.block.points, read.server])
    np.testing.assert_array_equal(np.sort(together[:, 0]), rows[:, 0])


def test_embeddings_may_be_in_the_same_file(tmp_path):
    column = pa.array([[0.0, 1.0], [2.0, 3.0]])
    pq.write_table(
        pa.table({"user_id": [1, 2], "tags": ["pdf", "git"], "embedding": column}), tmp_path / "questions.parquet"
    )
    table, rows = question_rows.read(tmp_path)
    assert table.column_names == ["user_id", "tags"]
    np.testing.assert_array_equal(rows, [[0.0, 1.0], [2.0, 3.0]])


def test_questions_that_do_not_fit_their_embeddings_are_refused(tmp_path):
    with pytest.raises(LookupError, match=r"--data must hold questions\.parquet"):
        question_rows.read(tmp_path)
    pq.write_table(pa.table({"user_id": [1]}), tmp_path / "questions.parquet")
    with pytest.raises(ValueError, match="must have a column tags"):
        question_rows.read(tmp_path)
    pq.write_table(pa.table({"user_id": [1, 2], "tags": ["a", "b"]}), tmp_path / "questions.parquet")
    with pytest.raises(LookupError, match=r"embeddings\.npy"):
        question_rows.read(tmp_path)
    for rows in (np.zeros((3, 2)), np.full((2, 2), np.nan), np.zeros(2)):
        np.save(tmp_path / "embeddings.npy", rows)
        with pytest.raises(ValueError, match="embeddings must be finite, one per question"):
            question_rows.read(tmp_path)
    uneven = pa.table({"user_id": [1, 2], "tags": ["a", "b"], "embedding": [[1.0], [1.0, 2.0]]})
    pq.write_table(uneven, tmp_path / "questions.parquet")
    with pytest.raises(ValueError, match="embeddings of one length"):
        question_rows.read(tmp_path)
