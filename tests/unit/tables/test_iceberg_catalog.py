"""Iceberg tables that a catalog knows: by name, at a snapshot, and without a word of the catalog's secrets."""

import logging

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.snapshot import TableConfig
from dapple_dp.transforms.tables.snapshots import resolve
from tests.scenes import tables

SECRET = "hunter2"


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """A catalog of SQLite by pyiceberg's own configuration, with a table of two snapshots."""
    settings = {
        "prod": {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": tmp_path.as_uri()},
        "broken": {"TYPE": "sql", "URI": f"sqlite:////nowhere/{SECRET}/catalog.db"},
        "remote": {"TYPE": "rest", "URI": f"http://user:{SECRET}@127.0.0.1:9/", "TOKEN": SECRET},
    }
    for name, values in settings.items():
        for key, value in values.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    found = load_catalog("prod")
    found.create_namespace("clinic")
    for name, values in (("visits", [1.0, 2.0]), ("other", [9.0])):
        table = found.create_table(f"clinic.{name}", pa.schema({"x": pa.float64()}))
        for value in values:
            table.append(pa.table({"x": [value]}))
    return found


def data_of(identifier="clinic.visits", name="prod", version=None):
    table = {"format": "iceberg", "catalog": name, "identifier": identifier}
    return DataConfig(features=["x"], table=table if version is None else table | {"version": version})


def rows_of(source):
    return sorted(x for path in source.list_files() for x in pa.parquet.read_table(path)["x"].to_pylist())


def test_a_table_is_read_as_by_its_path(catalog):
    table = catalog.load_table("clinic.visits")
    found = resolve(data_of())
    by_path = DataConfig(path=tables.metadata_path(table), features=["x"], table=TableConfig(format="iceberg"))
    assert (found.files, found.snapshot) == (resolve(by_path).files, resolve(by_path).snapshot)
    assert found.path == "iceberg://prod/clinic.visits"
    assert rows_of(found) == [1.0, 2.0]


def test_the_newest_snapshot_is_read_or_the_one_that_is_asked_for(catalog):
    table = catalog.load_table("clinic.visits")
    first = table.snapshots()[0].snapshot_id
    assert rows_of(resolve(data_of(version=first))) == [1.0]
    table.append(pa.table({"x": [3.0]}))
    assert rows_of(resolve(data_of())) == [1.0, 2.0, 3.0]
    foreign = catalog.load_table("clinic.other").current_snapshot().snapshot_id
    with pytest.raises(InputError, match=r"iceberg://prod/clinic.* has no snapshot id"):
        resolve(data_of(version=foreign))


@pytest.mark.parametrize(
    "identifier", ["clinic.nothing", "elsewhere.visits", "clinic.visits.snapshots", "a.b.branch_x"]
)
def test_a_path_that_is_not_a_table_is_refused(catalog, identifier):
    with pytest.raises(InputError, match=r"pyiceberg could not load the table"):
        resolve(data_of(identifier))


@pytest.mark.parametrize("name", ["broken", "remote", "unknown"])
def test_no_message_holds_a_secret_of_a_catalog(catalog, name, caplog):
    with caplog.at_level(logging.INFO), pytest.raises(InputError) as caught:
        resolve(data_of(name=name))
    assert SECRET not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


NAMED = {"format": "iceberg", "catalog": "prod", "identifier": "clinic.visits"}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"table": {"format": "iceberg", "catalog": "prod"}}, "identifier is required with catalog"),
        ({"table": {"format": "iceberg", "identifier": "a.b"}}, "catalog is required with identifier"),
        ({"table": NAMED | {"format": "delta"}}, "catalog isn't supported for format delta"),
        ({"table": NAMED | {"catalog": "http://u:p@host"}}, "data.table.catalog"),
        ({"table": NAMED | {"identifier": "visits"}}, "data.table.identifier"),
        ({"table": NAMED | {"identifier": "s3://b/a.b"}}, "data.table.identifier"),
        ({"table": NAMED, "path": "lake"}, "data.path isn't supported for the table of a catalog, got 'lake'"),
        ({"table": {"format": "iceberg"}}, "data.path is required"),
        ({}, "data.path is required"),
    ],
    ids=str,
)
def test_sections_that_make_no_sense_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        rejection.check_config(DataConfig, {"features": ["x"]} | settings, within="data")


@pytest.mark.parametrize("name", ["branch", "tag", "ref"])
def test_names_that_can_be_moved_are_refused(name):
    table = {"format": "iceberg", "catalog": "prod", "identifier": "clinic.visits", name: "main"}
    with pytest.raises(
        ConfigError, match=f"snapshot by its id, since a branch or a tag can be moved, got {name}; give "
    ):
        DataConfig(table=table, features=["x"])


def test_a_section_survives_its_dump():
    data = data_of()
    assert DataConfig.model_validate(data.model_dump()) == data
    table = TableConfig(format="iceberg")
    assert TableConfig.model_validate(table.model_dump()) == table


def test_a_path_with_a_password_is_refused_without_it():
    for path in (f"s3://key:{SECRET}@bucket/rows", f"hdfs://user:{SECRET}@node:8020/rows"):
        with pytest.raises(ConfigError, match=r"data\.path must hold no password") as caught:
            check_stores({"data": {"path": path}})
        assert SECRET not in str(caught.value)
    check_stores({"path": "/a:b@c", "endpoint": "http://host:80/x"})
