"""The table of jobs on a model: `assign`, `evaluate` and `profile`, by the rows that they read."""

from tests.seams import fits, places
from tests.seams.array import Row, excluded
from tests.seams.desk import table_of
from tests.seams.fits import factor
from tests.seams.places import CLIENT_ROWS, DATASET, DAYS, N_ROWS, Place, Settings, changed

_NUMERIC = {"lower": -8, "upper": 8}
FACTORS = (
    factor(
        "data",
        "data.path",
        "data.partitions",
        "data.on_invalid_rows",
        parquet={},
        apart={},
        hive={},
        invalid={},
        delta={},
    ),
    factor(
        "columns", "data.features", "data.except", "data.feature_names", "data.width", listed={}, named={}, pattern={}
    ),
    factor(
        "unit",
        "privacy.unit",
        "data.client_id",
        "profile.max_rows_per_client",
        "data.max_rows_per_client",
        record={},
        client={},
        unbounded={},
    ),
    factor(
        "profile",
        "profile.numeric",
        "profile.categorical",
        means={"profile.numeric": {"a": _NUMERIC}},
        percentiles={"profile.numeric": {"a": _NUMERIC | {"percentiles": [10, 50]}, "b": _NUMERIC}},
        found={"profile.categorical": {"work": {}}},
        both={
            "profile.numeric": {"a": _NUMERIC | {"percentiles": [50]}},
            "profile.categorical": {"work": {"values": list(places.WORKS)}},
        },
    ),
    factor(
        "shares",
        usual={},
        own={f"profile.shares.{name}": 2.0 for name in ("sizes", "means", "histograms", "percentiles")},
    ),
    factor(
        "sampling",
        usual={},
        half={"profile.sampling_rate": 0.5},
        most={"profile.max_rows": N_ROWS, "data.public_rows": N_ROWS},
    ),
    factor(
        "epsilon",
        "privacy.epsilon",
        "privacy.delta",
        usual={"privacy.epsilon": 5.0, "privacy.delta": 1e-6},
        small={"privacy.epsilon": 0.1, "privacy.delta": 1e-9},
        large={"privacy.epsilon": 40.0, "privacy.delta": 1e-5},
    ),
    factor("ledger", "ledger", "data.name", none={}, charged={}, lacking={}),
    factor(
        "scored",
        usual={"silhouette_rows": 20},
        label={"label": "work", "silhouette_rows": 0},
        reference={"reference": "", "silhouette_rows": 20},
        beside={"beside_released": True, "silhouette_rows": 20},
    ),
    factor("ids", "model", none={}, work={"id_columns": ["work"]}),
)
COVERED = {f"evaluate.{name}" for name in ("label", "reference", "beside_released", "silhouette_rows")}
COVERED |= {"assign.id_columns", "assign.beside_released"}

EXCLUDED = (excluded("profile.max_rows_per_client must be", unit="unbounded"),)
TABLE = table_of(FACTORS, EXCLUDED)


def rows_job(row: Row, place: Place, model: str) -> Settings:
    """Model and data."""
    form = {"invalid": "parquet"}.get(row["data"], row["data"])
    found: Settings = {"model": model, "data": {"path": place.rows(form, "", invalid=row["data"] == "invalid")}}
    features = {"listed": "x", "named": list(places.NAMES), "pattern": ["*"]}[row["columns"]]
    found = changed(found, {"data.features": features, "data.client_id": "client_id"})
    if row["columns"] == "listed":
        found = changed(found, {"data.feature_names": ["north", "east", "up", "heat"], "data.width": 4})
    if row["columns"] == "pattern":
        found["data"]["except"] = ["client_id", "x", "work"]
    if row["data"] == "invalid":
        found["data"]["on_invalid_rows"] = "drop"
    if form == "hive":
        found["data"]["partitions"] = {"dt": DAYS[0]}
    if form == "delta":
        found["data"]["table"] = {"format": "delta", "version": 5}
    return found


def profile_job(row: Row, base: Settings) -> Settings:
    """What `profile` is asked beside."""
    found = changed(base, {"privacy.unit": "record" if row["unit"] == "record" else "client"})
    for each in FACTORS:
        if each.name not in ("scored", "ids"):
            found = changed(found, dict(each.levels[row[each.name]]))
    if row["unit"] == "client":
        found = changed(found, {"profile.max_rows_per_client": CLIENT_ROWS})
    if row["ledger"] != "none":
        found["data"]["name"] = DATASET
    return found


def fit_job(row: Row, place: Place) -> Settings:
    """The fit whose model is used."""
    features = "x" if row["columns"] == "listed" else list(places.NAMES)
    return {
        "algorithm": "dp_lloyd",
        "data": {"path": place.rows("parquet", ""), "features": features},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 2.0, "delta": 1e-6},
        "dp_lloyd": dict(fits.BOX) | {"init": "sphere_packing", "steps": 1},
    }
