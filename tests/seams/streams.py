"""The table of `stream`: the calendar, the contract and the start of an epoch beside what a window may be asked."""

import datetime
import functools
import pathlib
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.scenes import tables
from tests.seams import places
from tests.seams.array import Row, excluded
from tests.seams.desk import table_of
from tests.seams.fits import CURATORS, STANDARD, SYMMETRIC, WORDS, factor
from tests.seams.places import DATASET, NAMES, Settings, changed

FIRST, N_DONE = "2025-03-01", 3
DAY_CLIENTS, DAY_ROWS = 30, 90
LACKING = 0.01
"""A limit that no epoch fits."""
_INVALID = {"data.on_invalid_rows": "drop"}

FACTORS = (
    factor("unit", "privacy.unit", "data.client_id", "clipping.client_rows", record={}, client={}),
    factor(
        "contract",
        "stream.once",
        "stream.max_windows",
        "stream.min_separation",
        usual={},
        often={},
        seldom={},
        wrong={},
    ),
    factor(
        "reach",
        four={"stream.memory": 4, "stream.band": 2},
        usual={},
        alone={"stream.band": 1},
        long={"stream.memory": 9, "stream.band": 2},
    ),
    factor(
        "calendar",
        "stream.first",
        "stream.windows",
        "stream.column",
        "stream.name",
        days={"stream.settle": 0},
        weeks={"stream.days": 7},
        long={"stream.windows": 40},
        settled={"stream.settle": 2_592_000},
    ),
    factor("called", "stream.until", waiting={}, once={}, drained={}),
    factor("producer", anything={}, expected={"stream.expected_rows": 2}),
    factor("columns", listed={}, names_for_people={}, pattern={}, by_column={}, one_hot={}),
    factor("lake", usual={}, gap={}, apart={}, invalid=_INVALID, bounded={}, delta={}),
    factor(
        "start",
        "stream.start",
        own={},
        followed={},
        epoch={},
        feddp={},
        tree={},
        pooled={},
        other_unit={},
    ),
    factor(
        "of_start",
        usual={},
        central_tree={"dp_lloyd.init": "central_tree", "dp_lloyd.steps": 3},
    ),
    factor("algorithm", dp_lloyd={}, auto={}, feddp_kmeans={}),
    factor(
        "rounds",
        usual={},
        three={"dp_lloyd.steps": 3, "dp_lloyd.init": "candidates"},
    ),
    factor("n_clusters", three={}, one={"n_clusters": 1}, elbow={"n_clusters": {"max": 4, "choose": "elbow"}}),
    factor(
        "epsilon", usual={}, small={"privacy.epsilon": 0.05}, large={"privacy.epsilon": 30.0, "privacy.delta": 1e-5}
    ),
    factor("ledger", "ledger", charged={}, none={}),
    factor("rolls", "state", beside={}, apart={}),
    factor("clipping", usual={}, number={"clipping.norm": 9.0}),
    factor("server", none={}, rows={}),
    factor("trust", central={}, masked={"trust": "masked"}),
    factor("facts", none={}, curated=CURATORS, counted={}),
    factor("speed", usual={}, key={}, seed={"seed": 7}),
)

EXCLUDED = (
    excluded("data.table isn't supported for a stream", lake="delta"),
    excluded("data.max_rows_per_client isn't supported for a stream", unit="client", lake="bounded"),
    excluded(
        "algorithm must be dp_lloyd for a stream, got feddp_kmeans; use that, or use the fit job",
        algorithm="feddp_kmeans",
    ),
    excluded("server_data isn't supported for a stream", server="rows"),
    excluded("n_clusters must be an integer for a stream, .* use the fit job", n_clusters="elbow"),
    excluded("ledger is required for a stream", ledger="none"),
    excluded(
        "trust must be central for a stream, got 'masked'; .* or use the fit job with recurring.memory", trust="masked"
    ),
    excluded("state must be a folder on a local disk, for privacy.unit client only", rolls="apart", unit="record"),
    excluded("stream.max_windows isn't supported for privacy.unit record", contract="wrong", unit="record"),
    excluded("stream.once isn't supported for privacy.unit client", contract="wrong", unit="client"),
    excluded("stream.start must be a private fit, got one without privacy", start="pooled"),
    excluded("stream.start must be a run of privacy.unit .* choose another start", start="other_unit"),
    excluded("clipping must give the frame of .*, or choose another start", start="feddp|tree"),
    # What has no meaning together.
    excluded(unit="record", contract="often|seldom"),
    excluded(unit="record", lake="bounded"),
    excluded(lake="gap", reach="alone", columns="pattern"),
    excluded(calendar="long", called="once"),
    # It ends with code 67 after its windows; tests/attacks/test_exported_signals.py looks at it.
    excluded(producer="expected", lake="gap"),
)
TABLE = table_of(FACTORS, EXCLUDED)


class Days(places.Place):
    """Rows by day, in every form."""

    def dates(self, days: int) -> list[str]:
        """Dates of the first windows, and one before them."""
        first = datetime.date.fromisoformat(FIRST)
        return [(first + datetime.timedelta(days=days * index)).isoformat() for index in range(N_DONE)]

    @functools.cached_property
    def before(self) -> str:
        """Rows of the fit that an epoch starts from."""
        return self._day(self.folder / "before", 77)

    def lake(self, form: str, days: int) -> str:
        """A folder of days in a form."""
        folder = self.folder / f"{form}-{days}"
        if folder.exists():
            return str(folder)
        if form == "delta":
            found = [self._table(index) for index in range(N_DONE)]
            tables.write_delta(folder, found)
            return str(folder)
        for index, date in enumerate(self.dates(days)):
            if form != "gap" or index != 1:
                self._day(folder / f"dt={date}", index, apart=form == "apart", invalid=form == "invalid")
        return str(folder)

    def _table(self, seed: int, *, invalid: bool = False) -> Any:
        clients = np.arange(DAY_ROWS) % DAY_CLIENTS
        found = places.people(DAY_ROWS, seed, invalid=invalid).drop_columns(["client_id"])
        return found.append_column("client_id", [clients])

    def _day(self, folder: pathlib.Path, seed: int, *, apart: bool = True, invalid: bool = False) -> str:
        folder.mkdir(parents=True)
        found = self._table(seed, invalid=invalid)
        order = np.argsort(np.arange(DAY_ROWS) % DAY_CLIENTS, kind="stable")
        if not apart:
            found = found.take(order)
        for index in range(2):
            pq.write_table(found.slice(45 * index, 45), folder / f"part-{index}.parquet")
        return str(folder)


def _columns(row: Row) -> Settings:
    """Features, and how they are encoded."""
    level = row["columns"]
    features: Any = "x" if level in ("listed", "names_for_people") else list(NAMES)
    more: Settings = {"dp_lloyd.domain": [-8.0, 8.0]}
    if level == "names_for_people":
        more |= {"data.feature_names": ["north", "east", "up", "heat"], "data.width": 4}
    if level == "pattern":
        features, more = ["*"], more | {"data.except": ["client_id", "x", "work"]}
    if level == "by_column":
        more["dp_lloyd.domain"] = {name: [-8.0, 8.0 + index] for index, name in enumerate(NAMES)}
    if level == "symmetric":
        more = {"encode": SYMMETRIC, "dp_lloyd.domain": [-1.0, 1.0]}
    if level == "standardized":
        more["encode"] = STANDARD
    if level == "one_hot":
        features, more = ["work"], {"encode": WORDS, "dp_lloyd.domain": [0.0, 1.0]}
    return {"data.features": features} | more


_CONTRACTS = {
    "usual": {"stream.max_windows": 2, "stream.min_separation": 2},
    "often": {"stream.max_windows": 5, "stream.min_separation": 1},
    "seldom": {"stream.max_windows": 1, "stream.min_separation": 3},
}


def _unit(row: Row) -> Settings:
    once = {"stream.once": "made for a test"}
    if row["unit"] == "record":
        return {"privacy.unit": "record"} | once | (_CONTRACTS["usual"] if row["contract"] == "wrong" else {})
    bounded = {"data.max_rows_per_client": 2} if row["lake"] == "bounded" else {}
    own = {"privacy.unit": "client", "data.client_id": "client_id", "clipping.client_rows": 3}
    return own | bounded | _CONTRACTS.get(row["contract"], once)


def settings(row: Row, place: Days) -> Settings:
    """The job of a row, but for its start and its ledger."""
    found: Settings = {
        "experimental": True,
        "algorithm": row["algorithm"],
        "data": {"name": DATASET, "path": place.lake(row["lake"], 7 if row["calendar"] == "weeks" else 1)},
        "n_clusters": 3,
        "privacy": {"epsilon": 2.0, "delta": 1e-6},
        "server_data": {"path": place.server} if row["server"] == "rows" else "none",
        "stream": {"name": "spring", "column": "dt", "first": FIRST, "windows": N_DONE},
    }
    for part in (_columns(row), _unit(row)):
        found = changed(found, part)
    for each in FACTORS:
        if each.name not in ("start", "of_start"):
            found = changed(found, dict(each.levels[row[each.name]]))
    if row["facts"] == "counted":
        found["data"]["public_rows"] = DAY_ROWS if row["unit"] == "record" else DAY_CLIENTS
    if row["lake"] == "delta":
        found["data"]["table"] = {"format": "delta", "version": 2}
    if row["algorithm"] == "feddp_kmeans":
        found = changed(found, {"dp_lloyd": None, "clipping.norm": 16.0, "clipping.center": "none"})
    if row["trust"] == "masked":
        found["masked"] = {"secret_uri": place.secret}
    if row["speed"] == "key":
        found["key_uri"] = place.key
    if row["rolls"] == "apart":
        found["state"] = str(place.folder / "rolls-apart")
    return found


def start(row: Row, job: Settings, place: Days) -> Settings:
    """The fit from whose centers the first window starts."""
    found = changed(job, {"stream": None, "ledger": None, "state": None, "data.path": place.before, "data.table": None})
    own = {
        "dp_lloyd.domain": _columns(row)["dp_lloyd.domain"],
        "trust": None,
        "masked": None,
        "algorithm": "dp_lloyd",
        "server_data": "none",
        "n_clusters": 1 if row["n_clusters"] == "one" else 3,
    }
    found = changed(found, own | {"data.max_rows_per_client": None})
    kind = row["start"]
    (of_start,) = (each.levels for each in FACTORS if each.name == "of_start")
    found = changed(found, dict(of_start[row["of_start"]]))
    if kind == "other_unit":
        found["privacy"]["unit"] = "record" if row["unit"] == "client" else "client"
        if row["unit"] == "record":
            found = changed(found, {"data.client_id": "client_id", "clipping.client_rows": 3})
        else:
            found = changed(found, {"clipping.client_rows": None, "data.max_rows_per_client": None})
    others = {"feddp": "feddp_kmeans", "tree": "central_tree", "pooled": "optimal"}
    if kind in others:
        low = {"feddp": {"clipping.norm": 16.0, "clipping.center": "none"}, "tree": {"tree.radius": 16.0}}
        found = changed(found, {"dp_lloyd": None, "clipping.norm": None, "algorithm": others[kind]})
        found = changed(found, low.get(kind, {}))
    if kind == "pooled":
        dropped = ("privacy", "clipping", "server_data", "key_uri", "deployment", "plan", "justification", "seed")
        found = {name: value for name, value in found.items() if name not in dropped}
        found["data"] = {name: value for name, value in found["data"].items() if name in ("path", "features", "width")}
    return found
