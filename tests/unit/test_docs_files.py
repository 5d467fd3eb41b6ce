"""The reference names every column and key of the files that jobs write."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest

from dapple_dp.schemas.kmeans.recurring.drift import Drift
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.profile.plan import PROFILE_SCHEMA
from dapple_dp.schemas.tables.prepared_layout import PreparedManifest
from dapple_dp.schemas.trusted_zone.metrics import ClassAgreement, ReferenceMatch, Separation
from dapple_dp.schemas.trusted_zone.sweep_results import POINT_SCHEMA, SCORED_CELL_SCHEMA

REFERENCE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference"


def section(title):
    """Text of `files.md` below a heading, up to the next one."""
    parts = re.split(r"^## (.+)$", (REFERENCE / "files.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def fields(*kinds):
    return {field.name for kind in kinds for field in dataclasses.fields(kind)}


def drift():
    """Any drift of one cluster."""
    one = np.ones(1)
    found = Drift(
        previous_run="run",
        previous_digest="0" * 64,
        rows=(0,),
        numbers=(0,),
        next_number=1,
        gone=(),
        movements=one,
        noise=one,
        scores=one,
        sizes=np.ones((1, 2)),
        size_stddevs=(1.0, 1.0),
        size_scores=one,
    ).to_json()
    return {*found, *found["clusters"][0], *found["previous"]}


def prepared():
    """Keys of the manifest of an empty folder."""
    manifest = PreparedManifest(client_id="who", features="x", max_rows_per_client=None, files=())
    return set(re.findall(r'"(\w+)":', manifest.to_json()))


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("privacy.json", fields(PrivacyStatement)),
        ("drift.json", drift()),
        ("profile.parquet", set(PROFILE_SCHEMA.names)),
        (
            "metrics.json",
            fields(Separation, ClassAgreement, ReferenceMatch) | {"n_rows", "cost", "nicv", "cluster_sizes"},
        ),
        ("results.parquet and summary.parquet", {*SCORED_CELL_SCHEMA.names, *POINT_SCHEMA.names}),
        ("manifest.json", prepared()),
    ],
)
def test_every_name_of_a_file_is_on_the_page(title, names):
    assert {name for name in names if f"`{name}`" not in section(title)} == set()


def test_every_column_of_releases_is_on_its_page():
    text = (REFERENCE / "releases.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (?:string|bool|list|double|int64)", text, re.MULTILINE) == RELEASE_SCHEMA.names
