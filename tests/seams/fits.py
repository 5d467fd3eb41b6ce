"""The table of `fit`: every setting of a private fit, with values that meet each other."""

from collections.abc import Mapping
from typing import Any

from tests.seams.array import Factor, Row, Table, excluded
from tests.seams.places import (
    CLIENT_ROWS,
    COLUMNS,
    CSV,
    DATASET,
    DAYS,
    MISSING,
    N_CLIENTS,
    N_ROWS,
    NAMES,
    STORAGE,
    WORKS,
    Place,
    Settings,
    changed,
)


def factor(name: str, *covers: str, **levels: Mapping[str, Any]) -> Factor:
    """A factor whose levels change settings by `section.setting`; what they name is covered, and so is `covers`."""
    named = {path for level in levels.values() for path in level}
    return Factor(name=name, levels=levels, covers=frozenset(named) | set(covers))


BOX = {"domain": [-8.0, 8.0]}
SYMMETRIC = {name: {"kind": "bounds", "lower": -8.0, "upper": 8.0, "to": "symmetric"} for name in NAMES}
STANDARD = {name: {"kind": "standardize", "mean": 1.0, "stddev": 2.0} for name in NAMES}
WORDS = {"work": {"kind": "one_hot", "vocabulary": list(WORKS)}}
TERMS = {"work": {"kind": "terms", "words": list(WORKS), "width": 16}}
BINS = {name: {"kind": "quantile_bins", "bins": 3} for name in NAMES[:2]}
RANGES = {
    "by_column": (-1.0, 1.0),
    "symmetric": (-1.0, 1.0),
    "one_hot": (0.0, 1.0),
    "bins": (-8.0, 8.0),
    "terms": (-1.0, 1.0),
}
"""Ends of every feature after columns were encoded, where it is not (-8, 8)."""
OF_WORK = ("one_hot", "terms")
"""Levels of columns whose one feature is `work`, which no other column of a job may be."""
CURATORS = {
    "plan.assumed_rows": N_ROWS,
    "justification": {"privacy.epsilon": "decided in May"},
    "deployment.approved_by": "data protection office",
    "deployment.intended_use": "bus lines",
    "deployment.release_schedule": "once a quarter",
}

FACTORS = (
    factor(
        "algorithm",
        "algorithm",
        "experimental",
        feddp_kmeans={},
        dp_lloyd={},
        dp_medians={},
        central_tree={},
        auto={},
        spherical={},
        k_prototypes={},
    ),
    factor(
        "command",
        fit={},
        use={},
        sweep={},
    ),
    factor(
        "columns",
        *COLUMNS,
        listed={},
        named={},
        pattern={},
        names_for_people={},
        by_column={},
        symmetric={},
        standardized={},
        one_hot={},
        bins={},
        terms={},
        mixed={},
    ),
    factor(
        "storage",
        *STORAGE,
        "data.missing",
        parquet={},
        apart={},
        hive={},
        disjoint={},
        delta={},
        prepared={},
        csv={},
        invalid={},
        holes={"data.missing": MISSING},
    ),
    factor(
        "unit",
        "data.client_id",
        "data.max_rows_per_client",
        "clipping.client_rows",
        "privacy.unit",
        record={},
        client={},
        bounded_client={},
    ),
    factor(
        "trust",
        "masked.secret_uri",
        "masked.state_uri",
        "masked.scheme",
        "masked.threshold",
        "masked.corrupt",
        "masked.dropout",
        central={},
        shared={"trust": "masked"},
        pairwise={"trust": "masked"},
    ),
    factor("noise_by", aggregator={}, both={"masked.noise_by": "both"}, clients={"masked.noise_by": "clients"}),
    factor(
        "start",
        "recurring.previous",
        fresh={},
        warm={},
        cold={"recurring.warm_start": False},
        memory={"recurring.memory": 4},
    ),
    factor("ledger", "ledger", none={}, charged={}, lacking={}),
    factor("n_clusters", "n_clusters", three={}, elbow={"n_clusters.max": 4, "n_clusters.choose": "elbow"}, one={}),
    factor(
        "epsilon",
        "privacy.epsilon",
        "privacy.delta",
        usual={},
        small={"privacy.epsilon": 0.05},
        large={"privacy.epsilon": 30.0},
    ),
    factor(
        "allocation",
        tuned={},
        paper={"privacy.allocation": "paper"},
        published={"preset": "published"},
        auto_shares={"privacy.shares": "auto", "plan.assumed_rows": N_ROWS},
    ),
    factor("server", "server_data.path", rows={}, none={}),
    factor(
        "clipping",
        usual={},
        number={"clipping.norm": 9.0},
        private={"clipping.norm": "private"},
        centered={"clipping.center": "server_mean"},
        domain={"clipping.norm": "domain"},
    ),
    factor("quality", none={}, share={"quality.share": 0.1}, distance={"quality.max_distance": 4.0}),
    factor("lloyd", usual={}, steps={"lloyd.steps": 2, "lloyd.share": 0.4}),
    factor(
        "feddp",
        usual={},
        full={"feddp_kmeans.space": "full"},
        subspace={"feddp_kmeans.space": "subspace"},
        restarts={"feddp_kmeans.restarts": 21},
    ),
    factor(
        "init",
        usual={},
        best={"dp_lloyd.init": "best"},
        candidates={"dp_lloyd.init": "candidates"},
        sphere_packing={"dp_lloyd.init": "sphere_packing"},
        feddp_init={"dp_lloyd.init": "feddp_init"},
        central_tree={"dp_lloyd.init": "central_tree"},
    ),
    factor(
        "rounds",
        "dp_lloyd.domain",
        usual={},
        three={"dp_lloyd.steps": 3},
    ),
    factor(
        "tree",
        "tree.radius",
        "tree.center",
        usual={},
        shallow={"tree.depth": 4},
        centered={},
    ),
    factor(
        "sphere",
        "names.vocabulary",
        "justification",
        usual={},
        steps={"spherical.steps": 3},
        words={"names.column": "work", "names.words": list(WORKS)},
        vocabulary={"names.column": "work", "names.most_per_row": 1},
    ),
    factor(
        "prototypes",
        "k_prototypes.domain",
        usual={},
        heavy={"k_prototypes.gamma": 1.0},
    ),
    factor("facts", "data.name", none={}, curated=CURATORS, counted={"data.public_rows": N_ROWS}),
    factor(
        "speed",
        "key_uri",
        usual={},
        key={},
        seed={"seed": 7},
        chunks={"chunks.rounds": 1},
    ),
)


def columns(row: Row) -> Settings:
    """Features, and how they are encoded."""
    level = row["columns"]
    features: Any = list(NAMES)
    more: Settings = {}
    if level in ("listed", "names_for_people"):
        features = "x"
    if level == "names_for_people":
        more = {"data.feature_names": ["north", "east", "up", "heat"], "data.width": 4}
    if level == "listed" and row["storage"] == "delta":
        more = {"data.width": 4}
    if level == "pattern":
        features, more = ["*"], {"data.except": _no_numbers(row)}
    if level == "one_hot":
        features, more = ["work"], {"encode": WORDS}
    if level == "terms":
        features, more = ["work"], {"encode": TERMS}
    if level == "mixed":
        features, more = ["a", "work", "b"], {"encode": WORDS}
    if level in ("symmetric", "standardized", "bins"):
        more = {"encode": {"symmetric": SYMMETRIC, "standardized": STANDARD, "bins": BINS}[level]}
    return {"data.features": features} | more


def _numbers(row: Row) -> tuple[str, ...]:
    """Columns of numbers."""
    return ("a", "b") if row["columns"] == "mixed" else NAMES


def _no_numbers(row: Row) -> list[str]:
    """Columns that a pattern for all must not stand for."""
    return ["client_id", *{"prepared": [], "csv": ["work"]}.get(row["storage"], ["x", "work"])]


def _algorithm(row: Row) -> Settings:
    """Returns what an algorithm cannot be without."""
    name, low, high = row["algorithm"], *RANGES.get(row["columns"], (-8.0, 8.0))
    no_server = row["server"] == "none"
    domain: Any = [low, high]
    if row["columns"] == "by_column":
        domain = {column: [-8.0, 8.0] for column in NAMES}
    found: Settings = {}
    if name in ("dp_lloyd", "dp_medians", "auto"):
        found["dp_lloyd.domain"] = domain
    if name == "k_prototypes":
        found["k_prototypes.domain"] = {column: [-8.0, 8.0] for column in _numbers(row)}
    if name == "central_tree":
        found["tree.radius"] = 2.0 * high
    if row["tree"] == "centered":
        found["tree.center"] = [0.5] * {"one_hot": 3, "bins": 8, "mixed": 5}.get(row["columns"], 4)
    if name == "spherical":
        found["clipping.norm"] = high
    elif name not in ("dp_lloyd", "dp_medians", "auto", "central_tree", "k_prototypes"):
        found |= (
            {"clipping.norm": 2.0 * high, "clipping.center": "none"}
            if no_server
            else {"clipping.norm": "server_radius"}
        )
    if row["start"] in ("warm", "memory") and name == "feddp_kmeans":
        found["lloyd.steps"] = 1
    return found


def _unit(row: Row) -> Settings:
    found: Settings = {"privacy.unit": "record" if row["unit"] == "record" else "client"}
    if row["unit"] != "record" or row["storage"] == "prepared":
        found["data.client_id"] = "client_id"
    if row["unit"] != "record":
        found["clipping.client_rows"] = CLIENT_ROWS
    if row["unit"] == "bounded_client":
        found["data.max_rows_per_client"] = 7
    return found


def storage(row: Row, place: Place) -> Settings:
    form = {"invalid": "parquet", "holes": "parquet", "disjoint": "hive"}.get(row["storage"], row["storage"])
    found: Settings = {
        "data.path": place.rows(
            form,
            "abcd"
            if row["columns"] not in ("listed", "names_for_people", *OF_WORK)
            else "work"
            if row["columns"] in OF_WORK
            else "x",
            invalid=row["storage"] == "invalid",
            holes=row["storage"] == "holes",
        )
    }
    if row["storage"] == "invalid":
        found["data.on_invalid_rows"] = "drop"
    if form == "csv":
        found["data.csv"] = CSV
    if form == "hive":
        found["data.partitions"] = {"dt": DAYS[0]}
    if row["storage"] == "disjoint":
        found["data.disjoint_partitions"] = "A visit is written once."
    if form == "delta":
        found["data.table"] = {"format": "delta", "version": 5}
    return found


def _masked(row: Row, place: Place) -> Settings:
    if row["trust"] == "central":
        return {}
    found: Settings = {"masked.secret_uri": place.secret}
    if row["trust"] == "pairwise":
        found |= {"masked.scheme": "pairwise", "masked.threshold": 2, "masked.corrupt": 0.02, "masked.dropout": 0.2}
    elif row["noise_by"] == "clients":
        found["masked.corrupt"] = 0.0
    return found


def settings(row: Row, place: Place) -> Settings:
    """The job of a row, but for the run that it follows and its ledger."""
    found: Settings = {
        "experimental": any(row[name] in levels for name, levels in BEYOND.items()),
        "algorithm": row["algorithm"],
        "n_clusters": {"three": 3, "one": 1}.get(row["n_clusters"], {}),
        "privacy": {"epsilon": 2.0, "delta": 1e-6},
        "server_data": place.server_data(row["storage"]) if row["server"] == "rows" else "none",
    }
    parts = (_algorithm(row), columns(row), _unit(row), storage(row, place), _masked(row, place))
    for part in parts:
        found = changed(found, part)
    for each in FACTORS:
        found = changed(found, dict(each.levels[row[each.name]]))
    if row["sphere"] == "vocabulary":
        found["names"]["vocabulary"] = place.vocabulary
    if row["algorithm"] == "spherical" and row["unit"] == "record":
        found.setdefault("justification", {})["privacy.unit"] = "rows of one day"
    if row["facts"] == "counted":
        found["data"]["public_rows"] = N_ROWS if row["unit"] == "record" else N_CLIENTS
    if row["facts"] != "none" or row["ledger"] != "none":
        found["data"]["name"] = DATASET
    if row["speed"] == "key":
        found["key_uri"] = place.key
    return found


BEYOND = {
    "algorithm": ("dp_medians", "k_prototypes"),
    "allocation": ("paper", "published"),
    "init": ("feddp_init", "central_tree"),
}
"""Levels that are refused without `experimental: true`; rows without any have no word."""
OF_LLOYD = "dp_lloyd isn't supported for algorithm"
OF_TREE = "tree isn't supported for algorithm"
NOT_LLOYD = "feddp_kmeans|central_tree|spherical"
NOT_SPHERICAL = NOT_LLOYD.removesuffix("|spherical")
PROTOTYPES = "k_prototypes"
OPTIONS = "feddp_kmeans may hold only restarts for algorithm"
EXCLUDED = (
    # A section is of one algorithm; `auto` may have sections of all.
    excluded(OF_LLOYD, algorithm=NOT_LLOYD, init="best|candidates|sphere_packing|feddp_init|central_tree"),
    excluded(OF_LLOYD, algorithm=NOT_LLOYD, rounds="three"),
    excluded("recurring.memory isn't supported for algorithm dp_medians", algorithm="dp_medians", start="memory"),
    excluded(OF_TREE, algorithm="dp_lloyd|dp_medians|spherical", tree="shallow|centered"),
    excluded(
        OF_TREE,
        algorithm="feddp_kmeans",
        tree="shallow|centered",
    ),
    excluded(
        OPTIONS,
        algorithm="dp_lloyd|dp_medians|central_tree|spherical",
        feddp="full|subspace",
    ),
    excluded("trust must be masked if there is a masked section", trust="central", noise_by="both|clients"),
    excluded(
        "n_clusters must be an integer for algorithm",
        algorithm="dp_lloyd|dp_medians|spherical",
        n_clusters="elbow",
    ),
    excluded(
        "privacy.allocation must be tuned for algorithm dp_",
        algorithm="dp_lloyd|dp_medians",
        allocation="paper",
    ),
    excluded(
        "privacy.shares: auto needs algorithm feddp_kmeans", algorithm="dp_lloyd|dp_medians", allocation="auto_shares"
    ),
    excluded(
        "privacy.allocation and privacy.shares aren't supported",
        algorithm="central_tree|spherical",
        allocation="paper|auto_shares",
    ),
    # The printed method is one of the settings of FedDP-KMeans.
    *(
        excluded("preset isn't supported for algorithm", allocation="published", **cells)
        for cells in (
            {"algorithm": "dp_lloyd|dp_medians|central_tree|spherical"},
            {"algorithm": "auto", "server": "none"},
        )
    ),
    excluded("server_data is required for preset", algorithm="feddp_kmeans", allocation="published", server="none"),
    excluded("clipping.norm must be server_radius or a number", allocation="published", clipping="private"),
    excluded("clipping.center must be none for preset", allocation="published", clipping="centered"),
    excluded("feddp_kmeans.space must be subspace for preset", allocation="published", feddp="full"),
    excluded("clipping.norm must be", algorithm=NOT_LLOYD, clipping="domain"),
    excluded("clipping.norm must be domain or a number", algorithm="dp_lloyd|dp_medians", clipping="private"),
    excluded("clipping.norm must be", algorithm="spherical", clipping="private"),
    excluded("clipping.center must be none for algorithm spherical", algorithm="spherical", clipping="centered"),
    excluded("clipping.norm must equal tree.radius", algorithm="central_tree", clipping="number|private"),
    excluded(
        "quality isn't supported for algorithm (dp_|spherical)",
        algorithm="dp_lloyd|dp_medians|spherical",
        quality="share|distance",
    ),
    excluded("lloyd.steps must be 0 for algorithm dp_", algorithm="dp_lloyd|dp_medians", lloyd="steps"),
    excluded("lloyd.steps isn't supported for algorithm spherical", algorithm="spherical", lloyd="steps"),
    excluded(
        "(spherical|names) isn't supported for algorithm",
        algorithm="dp_lloyd|dp_medians|auto|feddp_kmeans|central_tree",
        sphere="steps|words|vocabulary",
    ),
    excluded("names.column must differ from", sphere="words|vocabulary", columns="pattern|one_hot|mixed"),
    excluded("column 'work' not found in", sphere="words|vocabulary", storage="prepared"),
    excluded("names isn't supported for a sweep", sphere="words|vocabulary", command="sweep"),
    excluded(
        "doesn't support a warm start",
        algorithm="central_tree|spherical",
        start="warm|memory",
    ),
    excluded("clipping.center must be 'none' without server_data", server="none", clipping="centered"),
    excluded(
        "server_data is required for dp_lloyd.init",
        algorithm="dp_lloyd|dp_medians",
        server="none",
        init="feddp_init",
    ),
    excluded(
        "clipping.norm must be domain or a number, and clipping.center none",
        algorithm="dp_lloyd|dp_medians",
        clipping="centered",
        init="usual|best|candidates|sphere_packing|central_tree",
    ),
    excluded("clipping.center must be none with a tree.center", clipping="centered", tree="centered"),
    excluded("n_clusters must be an integer for a warm start", start="warm|memory", n_clusters="elbow"),
    excluded("clipping.norm must be public for a warm start", start="warm|memory", clipping="private"),
    excluded("privacy.shares: auto needs algorithm feddp_kmeans", start="warm|memory", allocation="auto_shares"),
    excluded("privacy.shares: auto needs algorithm feddp_kmeans", server="none", allocation="auto_shares"),
    excluded("privacy.shares: auto needs algorithm feddp_kmeans", clipping="private", allocation="auto_shares"),
    excluded("must have public values if there is no server_data", columns="bins", server="none"),
    excluded(
        "masked.noise_by clients needs Gaussian noise in every release",
        noise_by="clients",
        allocation="paper|published",
    ),
    # `auto` without server data is dp_lloyd.
    *(
        excluded(refusal, algorithm="auto", server="none", **cells)
        for refusal, cells in (
            ("server_data is required for dp_lloyd.init", {"init": "feddp_init"}),
            ("quality isn't supported for algorithm dp_lloyd", {"quality": "share|distance"}),
            ("clipping.norm must be domain or a number", {"clipping": "private"}),
            ("lloyd.steps must be 0 for algorithm dp_lloyd", {"lloyd": "steps"}),
            ("n_clusters must be an integer for algorithm dp_lloyd", {"n_clusters": "elbow"}),
            ("privacy.allocation must be tuned for algorithm dp_lloyd", {"allocation": "paper"}),
            (OPTIONS, {"feddp": "full|subspace"}),
        )
    ),
    # What has no meaning together.
    excluded("data.features must name every column in a sweep", command="sweep", columns="pattern"),
    excluded(
        "dp_lloyd.domain must be one interval if the methods of a sweep differ",
        command="sweep",
        columns="by_column",
        algorithm="dp_lloyd|dp_medians",
    ),
    excluded(
        "dp_lloyd.domain must be one interval if the methods of a sweep differ",
        command="sweep",
        columns="by_column",
        algorithm="auto",
        server="none",
    ),
    excluded("trust must be central in a sweep", command="sweep", trust="shared|pairwise"),
    excluded("key_uri isn't supported", command="sweep", speed="key"),
    excluded("column '.*' not found in", columns="listed|names_for_people", storage="csv"),
    excluded(
        "encode.work.kind must not be terms", columns="terms", algorithm=f"dp_lloyd|dp_medians|auto|{NOT_SPHERICAL}"
    ),
    excluded("encode.work.kind must not be terms", columns="terms", command="sweep"),
    excluded(columns="one_hot|terms|mixed", storage="prepared"),
    # Rows of k_prototypes have numbers with bounds of their own, and codes.
    *(
        excluded(refusal, algorithm=PROTOTYPES, **cells)
        for refusal, cells in (
            ("data.features must be a list of columns for", {"columns": "listed|names_for_people|pattern"}),
            ("encode must have a column of codes", {"columns": "named|by_column"}),
            ("must (be kind one_hot|not be terms)", {"columns": "symmetric|standardized|bins|terms"}),
            ("no others in k_prototypes.domain", {"columns": "one_hot"}),
            ("server_data isn't supported for algorithm k_prototypes", {"server": "rows"}),
            (OF_LLOYD, {"init": "best|candidates|sphere_packing|feddp_init|central_tree"}),
            (OF_LLOYD, {"rounds": "three"}),
            (OF_TREE, {"tree": "shallow|centered"}),
            (OPTIONS, {"feddp": "full|subspace"}),
            ("n_clusters must be an integer for algorithm", {"n_clusters": "elbow"}),
            ("privacy.allocation and privacy.shares aren't supported", {"allocation": "paper|auto_shares"}),
            ("preset isn't supported for algorithm", {"allocation": "published"}),
            ("clipping.norm must be domain", {"clipping": "number|private|centered"}),
            ("quality isn't supported for algorithm k_prototypes", {"quality": "share|distance"}),
            ("lloyd.steps isn't supported for algorithm k_prototypes", {"lloyd": "steps"}),
            ("(spherical|names) isn't supported for algorithm", {"sphere": "steps|words|vocabulary"}),
            ("doesn't support a warm start", {"start": "warm|memory"}),
            ("encode must be the same in all methods of a sweep", {"command": "sweep"}),
        )
    ),
    excluded(
        "k_prototypes isn't supported for algorithm",
        algorithm=f"dp_lloyd|dp_medians|auto|{NOT_LLOYD}",
        prototypes="heavy",
    ),
    excluded(
        "data.missing isn't supported for the list column",
        columns="listed|names_for_people",
        storage="holes",
    ),
    excluded("data.missing.b must name a column of data.features", columns="one_hot|terms", storage="holes"),
)
KEPT = (
    {"quality": "share", "command": "fit"},
    {"server": "rows", "clipping": "private", "quality": "share"},
)
"""Levels of rows in which planted faults are noticed."""
TABLE = Table(factors=FACTORS, excluded=EXCLUDED, kept=KEPT)
UNVARIED = {
    "masked.parties": "of parties with jobs of their own",
    "masked.identity_uri": "of parties with jobs of their own",
    "masked.state_uri": "of parties with jobs of their own",
    "masked.one_message": "of parties with jobs of their own",
    "data.table.catalog": "needs a catalog beside the table",
    "data.table.identifier": "needs a catalog beside the table",
}
"""Settings, or sections of them, that no factor varies."""
