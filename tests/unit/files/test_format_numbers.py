"""Every file that outlives a run holds the number of its format: the list of writers is made from the code."""

import ast
import contextlib
import json
import pathlib
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import ConfigError, InputError, LedgerRefusedError
from dapple_dp.schemas.settings.format_number import FORMAT, check_number, with_number
from dapple_dp.schemas.settings.json_schema import NumberedFile, parse_as
from dapple_dp.schemas.settings.refusal import OtherFormatError, Refusal
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.files.formats.arrays_file import arrays_to_bytes
from dapple_dp.transforms.masked.party_state import PartyState
from tests.scenes import lake, ledgers

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGES = ("schemas", "transforms", "pipelines", "dapple_dp")
WRITERS = {
    "STORE.create",
    "STORE.put",
    "STORE.put_new",
    "ParquetWriter",
    "_put",
    "_write_atomically",
    "create",
    "json.dump",
    "link_in_place",
    "mkstemp",
    "np.savez",
    "pq.write_table",
    "put_in_place",
    "put_whole",
    "sqlite3.connect",
    "write",
    "write_bytes",
    "write_once",
    "write_text",
}
"""Calls that leave a file; `write` is that of a run's folder and of open files."""
NUMBERING = {"with_number", "table_bytes", "arrays_to_bytes", "FORMAT", "registry_yaml", "to_json", "to_bytes"}
"""What puts the number in."""
_HANDED = "content comes numbered from its callers"
_RUN = "is read by its own run only, whose processes are of one version"
_RAW = "random or hashed bytes of a length that is checked; what they belong to holds the number"
_PEOPLE = "is for people, and no job reads it"
_CLAIM = "names a run, for people and for a launcher that repeats it to them"
_NOT_A_FILE = "writes to no file that stays"
_REPORTS = "rows in the format of transforms/numerics/reports/FORMAT.md, whose parameters hold its version"
UNNUMBERED = {
    _CLAIM: ("transforms/files/claims.py:_made",),
    _HANDED: (
        "transforms/files/file_bytes.py:put_whole",
        "transforms/files/file_bytes.py:write_bytes",
        "pipelines/kmeans/report/files.py:write_outputs",
        "transforms/files/new_file.py:_write",
        "transforms/files/file_bytes.py:write_once",
        "transforms/files/new_file.py:put_in_place",
        "transforms/files/places/beam.py:create",
        "transforms/files/places/beam.py:put",
        "transforms/files/places/beam.py:_on_hadoop",
        "transforms/files/local_store.py:put",
        "transforms/files/local_store.py:put_new",
        "transforms/masked/exchange_files.py:send_again",
        "transforms/masked/exchange_files.py:_leave",
        "transforms/masked/exchange_files.py:_write",
        "transforms/masked/party_state.py:_write",
        "transforms/trusted_zone/assign_rows.py:_write_whole",
        "pipelines/plan/verify.py:_sign",
        "pipelines/run/folder.py:_stage",
        "pipelines/tables/arrivals/records.py:cut",
        "pipelines/tables/epoch_clients.py:params",
        "pipelines/tables/epoch_clients.py:_keep",
        "pipelines/trusted_zone/sweep_folder.py:_write_atomically",
        "dapple_dp/estimator/run_files.py:write_run",
    ),
    _RUN: (
        "transforms/clustered_fl/judge_models.py:_write_counts",
        "transforms/clustered_fl/labeled_clients.py:_write_parts",
        "transforms/files/file_bytes.py:write_listing",
        "transforms/files/row_spill.py:spill",
        "transforms/tables/listing.py:write_listing",
        "transforms/tables/listing.py:__init__",
        "pipelines/kmeans/plan/file_digests.py:_write_block",
        "pipelines/tables/client_staging.py:_write_answer",
        "pipelines/tables/private_source.py:staged_listing",
        "dapple_dp/integrations/beam_yaml.py:_run",
    ),
    _RAW: (
        "transforms/privacy/key_files.py:create_key",
        "transforms/rounds/bound_broadcast.py:bind",
        "pipelines/masked/clients_role.py:commit",
        "pipelines/run/run_keys.py:_write",
    ),
    _REPORTS: (
        "transforms/reports/shuffle.py:_write",
        "transforms/reports/shuffle.py:_file_of",
    ),
    "rows; the manifest of their folder holds the number": (
        "transforms/tables/prepared_files.py:_write_row_groups",
        "transforms/tables/prepared_files.py:__init__",
        "transforms/tables/prepared_files.py:write",
    ),
    _PEOPLE: (
        "dapple_dp/estimator/notebook.py:save",
        "pipelines/run/folder.py:write_report",
        "pipelines/kmeans/stream/windows_page.py:write_page",
        "pipelines/ledger/job.py:run",
        "pipelines/plan/starter.py:run",
        "pipelines/run/signals/exports.py:_put",
    ),
    "bytes whose SHA-256 `plan.json` holds, which has a number": ("pipelines/masked/clients_role.py:keep_settings",),
    "events in the format of OpenLineage, which each of them names": ("pipelines/jobs/lineage.py:_send",),
    "the ledger: `_make_tables` puts it in": (
        "pipelines/ledger/sqlite_file.py:_connected",
        "pipelines/ledger/store.py:set_limit",
        "pipelines/ledger/store.py:copy_to",
    ),
    _NOT_A_FILE: (
        "pipelines/command/main.py:main",
        "pipelines/command/main.py:_summary",
        "pipelines/jobs/run_job.py:run_settings",
        "pipelines/kmeans/stream/job.py:_check_clock",
        "pipelines/ledger/job.py:_copy",
        "pipelines/ledger/job.py:_limit",
        "pipelines/ledger/job.py:_show",
        "pipelines/ledger/job.py:_plan",
        "pipelines/ledger/job.py:_runs_that_fit",
        "pipelines/masked/party_run.py:_to_the_end",
        "pipelines/masked/party_run.py:play",
        "pipelines/page/axis.py:_text",
        "pipelines/plan/leftovers.py:run",
        "pipelines/plan/starter.py:_say",
        "pipelines/plan/verify.py:run",
        "pipelines/reports/decode.py:stage_outputs",
        "pipelines/run/flags.py:format_epilog",
    ),
}
"""Functions that put no number in, and why none is needed there."""


def _called(node):
    """Names in a call, last two parts."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.insert(0, node.id)
    return {".".join(parts[-2:]), parts[-1] if parts else ""}


def writers():
    """Functions that write a file, by path and name, and whether they put the number in."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    names = [
                        name for each in ast.walk(node) if isinstance(each, ast.Call) for name in _called(each.func)
                    ]
                    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | set(names)
                    if WRITERS & set(names):
                        found[f"{path.relative_to(ROOT)}:{node.name}"] = bool(NUMBERING & used)
    return found


def test_every_writer_of_a_lasting_file_puts_the_number_in():
    listed = [name for names in UNNUMBERED.values() for name in names]
    without = {name for name, has in writers().items() if not has}
    assert without - set(listed) == set(), "put the number in by schemas/settings/format_number.py, or say why not here"
    assert set(listed) - without == set(), "these have a number now, or are gone"


OTHERS = (None, 0, 2, "1", True)
REFUSAL = Refusal(kind=InputError, rule="a file must be whole", remedy="start over")
ADVICE = r"^.* must .*, got .* instead of format 1; read it with the version of dapple that wrote it, or .*\.$"


@pytest.mark.parametrize("number", OTHERS)
def test_json_of_another_number_is_refused(number):
    content = json.dumps({} if number is None else {"format": number})
    with pytest.raises(InputError, match=ADVICE):
        parse_as(content, NumberedFile, REFUSAL)
    assert parse_as(json.dumps(with_number({})), NumberedFile, REFUSAL).format == FORMAT


@pytest.mark.parametrize("number", [None, 0, 2, "1", True, 1.0, b"", b"x", b"2", b"1" * 20])
def test_files_of_other_formats_are_refused_without_their_content(number):
    with pytest.raises(OtherFormatError, match=r"^(no format number|format 0|format 2) instead of format 1$"):
        check_number(number)


def test_the_number_is_an_integer_or_its_digits():
    check_number(FORMAT)
    check_number(b"1")


def test_a_table_of_another_number_is_refused(tmp_path):
    table = pa.table({"a": [1]})
    for metadata in (None, {"dapple.format": "2"}):
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=ADVICE):
            untrusted.read_table(str(tmp_path / "a.parquet"), REFUSAL, untrusted.TableForm.by_size())
    (tmp_path / "a.parquet").write_bytes(table_bytes(table))
    assert untrusted.read_table(str(tmp_path / "a.parquet"), REFUSAL, untrusted.TableForm.by_size()).equals(table)


def test_arrays_of_another_number_are_refused(tmp_path):
    for number in ({}, {"format": np.array(2)}, {"format": np.array([1, 1])}):
        np.savez(tmp_path / "a.npz", a=np.ones(2), **number)
        with pytest.raises(InputError, match=ADVICE):
            untrusted.read_arrays(str(tmp_path / "a.npz"), REFUSAL)
    (tmp_path / "a.npz").write_bytes(arrays_to_bytes({"a": np.ones(2)}))
    assert list(untrusted.read_arrays(str(tmp_path / "a.npz"), REFUSAL)) == ["a"]


@pytest.mark.parametrize("number", [0, 2])
def test_a_ledger_of_another_number_is_refused_and_its_spending_is_not_forgotten(tmp_path, number):
    book = ledgers.new_ledger(tmp_path, ledgers.basic_limit(1.0))
    with contextlib.closing(sqlite3.connect(book.path)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
        connection.commit()
    for ask in (book.entries, lambda: book.set_limit("census", ledgers.basic_limit(2.0))):
        with pytest.raises(LedgerRefusedError, match=ADVICE) as refused:
            ask()
    assert "a new ledger with a limit that is lower by all that this one has spent" in str(refused.value)


def test_a_party_of_another_number_answers_nothing(tmp_path):
    secret = tmp_path / "secret"
    lake.write_key(secret)
    state = PartyState.enroll(str(tmp_path / "state"), str(secret), "north")
    path = pathlib.Path(state.folder, "format.json")
    assert json.loads(path.read_text()) == {"format": FORMAT}
    path.write_text('{"format": 2}')
    for _ in range(2):
        with pytest.raises(ConfigError, match=ADVICE):
            PartyState.of(str(tmp_path / "state"), str(secret), "north")
        path.unlink(missing_ok=True)
