"""Checks published runs of Dapple from their files alone; shares no code with Dapple.

    pip install numpy pyarrow dp-accounting
    python verify_release.py OUTPUT [LATER_OUTPUT ...] [--key HEX]

Prints what holds and what nobody can know from these files. Exit code 0: all that can be recomputed holds; 5: something
was altered or does not agree; 2: wrong usage. The formulas are those of Dapple's page "Privacy guarantee and proof".
"""

import argparse
import collections
import decimal
import hashlib
import json
import logging
import math
import os
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dp_accounting import NeighboringRelation, dp_event, gaussian_mechanism, pld, rdp

SUM, RELATIVE, SCATTER = 1 << 20, 1 << 26, 1 << 32  # Lattice units of a bound: in sums, relative sums, outer products.
LAPLACE, LAWS = "discrete_laplace", ("discrete_gaussian", "discrete_laplace")
PATH = r"\w+/\w+/(rows|sizes|cost|histogram|cells|candidates|scatter|directions|terms|(weighted_)?(sums|counts))"
NEVER = """that each row was really bounded as stated before it was summed
that noise of the stated law was really drawn, and that nobody kept the key that drew it
that bounds and other settings were chosen without a look at private rows
that what the settings call public is public, and that no more parties pool what they know than they assume
that the same rows are in no other release, and in no other window than they may: a ledger can be incomplete"""


def need(holds, name, rule, got="another"):
    """Refuses a file that does not keep a rule."""
    if not holds:
        raise AssertionError(f"{name} must {rule}, got {got}.")


class Run:
    """A folder, what its JSON files say, and the sentences about it."""

    def __init__(self, folder):
        self.folder, self.holds, self.unknown = folder, [], NEVER.splitlines()
        self.manifest, self.privacy = self.json("run.json"), {}

    def read(self, name):
        """A file of the folder, which is no link."""
        path = self.folder
        for part in name.split("/"):
            path = os.path.join(path, part)
            need(not os.path.islink(path), name, "be a file of its own", "a link")
        need(os.path.isfile(path) and os.path.getsize(path) < 1 << 32, name, "be there", "nothing that can be read")
        with open(path, "rb") as file:
            return file.read()

    def json(self, name):
        """A JSON object of format 1 whose numbers are finite."""
        found = json.loads(self.read(name), parse_constant=lambda word: need(False, name, "hold finite numbers", word))
        need(isinstance(found, dict) and found.get("format", 1) == 1, name, "be an object of format 1")
        return found

    def table(self, name):
        """A Parquet file, read in this thread: a pool of threads may outlive the interpreter, which then aborts."""
        return pq.ParquetFile(pa.BufferReader(self.read(name))).read(use_threads=False)

    def check_files(self):
        """Digests of all files, and of run.json without its own digest."""
        listed = self.manifest["files"]
        others = {name: value for name, value in self.manifest.items() if name != "manifest_digest"}
        own = hashlib.sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        need(own == self.manifest["manifest_digest"], "run.json", "have its own digest")
        for name in sorted(listed):
            need(not {"", ".", ".."} & set(name.split("/")), "run.json", "list files of the folder", repr(name))
            own = hashlib.sha256(self.read(name)).hexdigest()
            need(own == listed[name], name, "have the digest in run.json", "a changed file")
        for place, folders, files in os.walk(self.folder):
            for each in [*files, *(each for each in folders if os.path.islink(os.path.join(place, each)))]:
                name = os.path.relpath(os.path.join(place, each), self.folder).replace(os.sep, "/")
                need(name in {*listed, "run.json", "signature.json"}, repr(name), "be listed in run.json", "no")
        self.holds.append(f"{len(listed)} files have the digests in run.json; no file is missing or more than listed.")


def composed(events, windows, delta, target):
    """Epsilon of releases together, by lemmas 8 and 9 of the proof; the target sets the resolution."""
    groups, pure, lower, upper, left, multiplier = [], collections.Counter(), 0.0, 0.0, delta, math.inf
    for event in events:
        z, size = event["noise_multiplier"], math.prod(event["shape"])
        if event["mechanism"] == LAPLACE:
            pure[1.0 / z] += 1
            continue
        diagonal = (math.isqrt(8 * size + 1) - 1) // 2 if event["geometry"] == "symmetric" else size
        variance = (z * event["sensitivity_lattice"]) ** 2
        groups += [(windows * diagonal, variance), (windows * (size - diagonal), variance / 2.0)]
        multiplier = 1.0 / math.hypot(1.0 / multiplier, 1.0 / z)
    if groups:
        need(min(v for _, v in groups) >= 0.25, "noise", "be no finer than half a lattice step", "less")
        exponent = target - math.log(5e-4 * delta)
        lower = -math.fsum(size * math.log1p(-1.0 / (24.0 * v)) for size, v in groups)
        upper = math.fsum(size * (0.5 / v + 3.0 * math.exp(-2.0 * math.pi**2 * v)) for size, v in groups)
        upper += math.sqrt(exponent * math.fsum(size / v**2 for size, v in groups))
        upper += exponent * max(1.0 / v for _, v in groups)
        left = (delta - 5e-4 * delta) * math.exp(-lower)
    width = max(min(1e-3, target / 1e3), target / 2e4, 1e-4 / multiplier) / min(max(pure.total(), 1), 10)
    accountant = pld.PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, width)
    for epsilon, count in sorted(pure.items()):
        accountant.compose(dp_event.DiscreteLaplaceDpEvent(epsilon, 1), count)
    if groups:
        accountant.compose(dp_event.GaussianDpEvent(multiplier))
    return float(accountant.get_epsilon(left - 1e-14)) + lower + upper


def check_epsilon(run, _, bounds):
    """Epsilon recomposed, and compared with what is stated and what was asked for."""
    privacy, asked, epoch = run.privacy, bounds.settings["privacy"], bounds.epoch
    epsilon, delta, unit = privacy["epsilon"], privacy["delta"], privacy["unit"]
    good = 0.0 < delta < 1.0 and unit in ("record", "client") and (delta, unit) == (asked["delta"], asked["unit"])
    need(good, "privacy.json", "have delta and unit of the settings", f"{delta} and {unit}")
    relation = "zeroed_out" if bounds.noise_by == "clients" else "add_or_remove_one"
    terms, wanted = (privacy["neighboring_relation"], privacy["trust"], epoch), (relation, bounds.settings["trust"])
    good = terms == (*wanted, run.manifest.get("epoch"))
    need(good, "privacy.json", "have the neighbors, trust and epoch of run.json", terms)
    found = composed(privacy["events"], bounds.n_moved, delta, asked["epsilon"])
    need(math.isclose(found, epsilon, rel_tol=1e-6), "privacy.json", f"state the composed epsilon {found:.9g}", epsilon)
    used = 0.98 * asked["epsilon"] <= epsilon <= asked["epsilon"] or epsilon < 100.0 * delta
    need(used, "privacy.json", f"spend the epsilon asked for, {asked['epsilon']}", epsilon)
    covers = f" for all {epoch['windows']} windows of the epoch together" if epoch else ""
    run.holds.append(f"Mechanisms compose per {unit} to epsilon {found:.9g} at delta {delta:g}{covers}, as stated.")


class Bounds:
    """Public bounds of a fit: what one unit may move, and how many feature units a lattice step is."""

    def __init__(self, run):
        manifest, self.epoch = run.manifest, run.privacy.get("epoch")
        self.column, self.n_moved = np.ones(1, np.int64), 1
        self.settings, self.algorithm, self.frame = (manifest[name] for name in ("settings", "algorithm", "frame"))
        settings, named = self.settings, (self.settings["algorithm"], run.privacy["algorithm"])
        need(named == (self.algorithm, self.algorithm), "run.json", "name one algorithm", named)
        self.noise_by = settings["masked"]["noise_by"] if settings["trust"] == "masked" else ""
        self.options, self.d = settings.get("dp_lloyd") or {}, len(manifest["features"])
        self.record = settings["privacy"]["unit"] == "record"
        self.client_rows = 0.5 * (settings["clipping"].get("client_rows") or 1)
        self.samples = self.record and settings["data"]["max_rows_per_client"] is not None
        self.norm = self.frame["clipping_norm"] if self.frame else None
        self.unit = None if self.norm is None else self.norm * 2.0**-20
        self.boxed = self.algorithm in ("dp_lloyd", "dp_medians", "windows")
        if self.epoch:
            weights, apart = self.epoch["weights"], self.epoch.get("min_separation") or self.epoch["windows"]
            times = min(self.epoch.get("max_windows") or 1, -(-self.epoch["windows"] // apart))
            self.column, self.n_moved = np.zeros((times - 1) * apart + len(weights), np.int64), len(weights) * times
            for first in range(0, times * apart, apart):
                self.column[first : first + len(weights)] += np.array(weights)
        if not self.boxed:
            return
        options, domain, given = self.options, self.options["domain"], self.settings["clipping"]["norm"]
        low, high = domain if isinstance(domain, list) and not isinstance(domain[0], list) else (-1.0, 1.0)
        self.half, side, k = 0.5 * (high - low), math.sqrt(self.d), self.settings["n_clusters"]
        self.start = options["init"] or ("best" if options.get("variant", "fast") == "fast" else "sphere_packing")
        norm = given if isinstance(given, float) and self.start != "feddp_init" else math.inf
        middle = [low + self.half] * self.d
        wanted = {"clipping_norm": min(self.half * side, norm), "domain": [low, high], "center": middle}
        need(self.frame == wanted, "frame in run.json", "be that of the settings", self.frame)
        private = self.start in ("best", "candidates", "feddp_init", "central_tree")
        self.near = private or bool((run.manifest["previous"] or {}).get("warm_start"))
        self.shrinks = private if options.get("update") is None else options["update"] == "shrunken"
        scaled = options.get("radius_factor", 0.8) * side / (k if isinstance(k, int) else k["max"]) ** (1.0 / self.d)
        self.radius = min(1.0, 2.0 * norm / (self.half * side)) * (self.half * scaled)
        first = self.half * side if options.get("radius", "step") == "step" else self.radius
        self.first = (0.5 if self.shrinks else 1.0) * self.radius if self.near else first

    def is_relative(self, path):
        """True for a release of differences to centers."""
        kind, part, name = path.split("/")
        lloyd = part.startswith(("lloyd_", "fine_")) and self.options.get("variant", "fast") == "fast"
        if kind == "k_prototypes":
            return name == "sums"
        return name == "weighted_sums" or (kind == "dp_lloyd" and name == "sums" and (part == "mean" or lloyd))

    def sensitivity(self, row):
        """Largest change of a release by one unit, lattice units."""
        name, laplace = row["path"].split("/")[2], row["mechanism"] == LAPLACE
        base = RELATIVE if self.is_relative(row["path"]) else SCATTER if name == "scatter" else SUM
        base = math.isqrt(row["shape"][-1] * base**2) if laplace and name == "sums" else base
        if self.epoch:
            return math.isqrt(int((self.column**2).sum()) * base**2 - 1) + 1
        if not self.samples or name == "cost":
            return base
        return 2 * base if laplace or name in ("sums", "directions", "terms") else math.isqrt(2 * base**2) + 1

    def lattice_unit(self, path):
        """Feature units (rows) of a lattice step; None where it follows from what is not published."""
        (kind, part, name), one, norm, relative = path.split("/"), 2.0**-20, self.norm, self.is_relative(path)
        if name in ("rows", "sizes") or part == "norms":
            return one
        if kind == "spherical":
            share = 1.0 if self.record else self.settings["spherical"].get("client_norm", 0.5)
            named = self.settings["names"] or {"most_per_row": 1, "words": "-"}
            most = min(named["most_per_row"], len(named["words"]))
            if "per_unit" in named:  # a run of 0.2.0
                rows = 1 if self.record else self.settings["clipping"]["client_rows"]
                most = min(8 * rows, 32) if named["per_unit"] == "auto" else named["per_unit"]
            return {"sums": share * norm * one, "terms": 1.0 / max(1, math.isqrt(SUM**2 // most))}.get(name, one)
        if kind == "k_prototypes":
            codes, length = self.settings["encode"], math.sqrt(0.5 * self.settings["k_prototypes"]["gamma"])
            numbers = self.d - sum(len(each["vocabulary"]) for each in codes.values())
            radius = min(max(1, int(math.sqrt(numbers + 2.0 * len(codes) * length**2) / self.unit)), 2 * SUM)
            bound = max(1, int((1.0 if self.record else 0.5) * radius))
            return self.unit / (RELATIVE // bound) if relative else 1.0 / max(1, math.isqrt(SUM**2 // len(codes)))
        if not self.boxed or kind not in ("dp_lloyd", "dp_medians", "windows"):
            if name == "cost" or norm is None or self.boxed or not (self.record or part == "shape"):
                return None
            norm = self.settings["tree"]["radius"] if kind == self.algorithm == "central_tree" else norm
            return {"scatter": norm**2 * 2.0**-32, "sums": norm * one}.get(name, one)
        searched = self.start in ("candidates", "feddp_init") and (relative or not self.record)
        if name == "cost" or (searched and part != "mean"):
            return None
        share, rows = (1.0, 1.0) if self.record else (self.options.get("client_radius", 0.5), self.client_rows)
        if not relative:
            scatter = 2.0**-32 * (0.5 * norm) ** 2 * rows
            return {"directions": share * one, "sums": self.unit, "scatter": scatter}.get(name, one)
        radius = self.first if self.near or part.endswith("_00") else self.radius
        steps = min(max(1, int(radius / self.unit)), 2 * SUM)
        return self.unit / (RELATIVE // (int(0.7 * norm / self.unit) if part == "mean" else max(1, int(share * steps))))


def check_releases(run, rows, bounds):
    """Mechanisms, noise, sensitivities and lattice units of all releases."""
    events, left_out = run.privacy["events"], []
    paths, factor = [row["path"] for row in rows], math.sqrt(2.0) if bounds.noise_by == "both" else 1.0
    same = [event["path"] for event in events] == paths and len(set(paths)) == len(paths)
    need(same, "privacy.json", "list the releases of releases.parquet", "others")
    for row, event in zip(rows, events, strict=True):
        where, law, bound = f"release {row['path']}", row["mechanism"], row["sensitivity_lattice"]
        same = all(row[name] == event[name] for name in ("mechanism", "sensitivity_lattice", "geometry", "shape"))
        known = law in LAWS and re.fullmatch(PATH, row["path"])
        need(same and known, where, "be a release that Dapple has, as privacy.json lists it")
        need(bound == bounds.sensitivity(row), where, f"have sensitivity {bounds.sensitivity(row)}", bound)
        for found in (row, event):
            stddev, stated = found["noise_multiplier"] * bound, found["noise_stddev_lattice"]
            stddev = math.sqrt(2.0) * math.ceil(stddev) if law == LAPLACE else stddev
            good = 0.0 < stddev < 2.0**62 and math.isclose(stated, stddev)
            need(good, f"noise of {where}", f"be multiplier x sensitivity, {stddev:.9g}", stated)
        ratio = row["noise_multiplier"] / event["noise_multiplier"]
        good = ratio >= 1.0 if bounds.noise_by == "clients" else math.isclose(ratio, factor)
        need(good, f"noise multiplier of {where}", "be what privacy.json counts", row["noise_multiplier"])
        wanted, shape, unit = bounds.lattice_unit(row["path"]), row["shape"], row["lattice_unit"]
        good = 0.0 < unit < math.inf and math.isclose(row["sensitivity"], bound * unit)
        need(good, where, "have a sensitivity of lattice units x lattice unit", row["sensitivity"])
        need(wanted is None or math.isclose(unit, wanted), where, f"have lattice steps of {wanted}", unit)
        left_out += [row["path"]] if wanted is None else []
        good = row["geometry"] == "vector" or row["path"].endswith("/scatter")
        need(good and len(row["values_lattice"]) == math.prod(shape), where, "have values of its shape", shape)
    run.holds.append(f"The noise of {len(rows)} releases is multiplier x sensitivity; their values are whole steps.")
    run.holds.append(f"All sensitivities, and {len(rows) - len(left_out)} lattice units, follow from published bounds.")
    given = f"that public data or earlier releases gave the lattice units of {', '.join(left_out)}"
    run.unknown += [given] if left_out else []


def decoded(row):
    """Released numbers in feature units (rows)."""
    return np.array(row["values_lattice"], np.int64).reshape(row["shape"]).astype(np.float64) * row["lattice_unit"]


def check_centers(run, rows, bounds):
    """Centers are on the lattice; sizes, means and (for DP-Lloyd) centers are recomputed."""
    table = run.table("centers.parquet").sort_by("cluster")
    clusters, unit = run.manifest["clusters"], bounds.unit
    centers, numbers = np.array(table["center"].to_pylist(), dtype=np.float64), table["cluster"].to_pylist()
    k, order, metadata = len(numbers), clusters["released_rows"], table.schema.metadata or {}
    good = numbers == clusters["numbers"] and sorted(order) == list(range(k)) and centers.shape == (k, bounds.d)
    need(good and np.isfinite(centers).all(), "centers.parquet", "have the clusters of run.json", "others")
    if bounds.frame is None or "memory.parquet" in run.manifest["files"]:
        return run.unknown.append("that centers follow from the releases: the run moved its frame, or remembers others")
    middle, back = np.array(bounds.frame["center"]), np.argsort(order)
    steps = np.rint((centers - middle) / unit)
    fine = 4.0 * np.spacing(np.maximum(np.abs(centers), np.abs(middle)))
    on = (np.abs(steps * unit + middle - centers) <= fine).all(axis=1)
    need(on.all(), "centers.parquet", "hold centers on the lattice", f"cluster {numbers[on.argmin()]} beside it")
    last = max((at for at, row in enumerate(rows) if row["path"].endswith("/counts")), default=0)
    leaves, path = not re.search(r"(?<!/leaves)/counts$", rows[last]["path"]), rows[last - 1]["path"]
    sized = next((row for row in rows if row["path"].endswith("/quality/sizes")), None if leaves else rows[last])
    same = sized is None or (decoded(sized)[:k][order] == table["noisy_size"].to_numpy()).all()
    need(same, "centers.parquet", "have the released sizes", "others")
    run.holds.append("Centers are on the lattice" + (", and sizes are the released ones." if sized else "."))
    if leaves or b"noisy_means" not in metadata:
        return run.unknown.append("that centers follow from the releases: one moved by whole lattice steps is not seen")
    sums, counts, relative = decoded(rows[last - 1])[:k], decoded(rows[last])[:k], bounds.is_relative(path)
    counts_stddev = rows[last]["noise_stddev_lattice"] * rows[last]["lattice_unit"]
    stated = np.array(json.loads(metadata[b"noisy_means"]), dtype=np.float64)[back]
    means = sums / np.maximum(counts, max(counts_stddev, 1e-9))[:, None]
    origins = np.rint((stated - means - middle) / unit) * unit if relative else np.zeros_like(means)
    off = np.abs(origins + middle + means - stated)
    good = (off <= 1e-9 * (np.abs(means) + np.abs(stated)) + 1e-6 * unit).all()
    need(good, "noisy means in centers.parquet", f"be sums over counts of {path}", "others")
    moves = sums / np.where(np.abs(counts) < 1e-9, 1e-9, counts)[:, None]
    limit = bounds.radius if relative and bounds.boxed and bounds.options.get("clip_moves", True) else math.inf
    moves *= np.minimum(1.0, limit / np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), 1e-300))
    shrinks = not path.startswith("dp_lloyd/") or (relative and bounds.shrinks)
    if shrinks or (np.abs(origins + moves) > bounds.half).any():
        return run.unknown.append("that centers follow from means: one moved by whole lattice steps is not seen")
    found = (origins + moves) / unit
    good = (np.trunc(found - 1e-4) == steps[back]) | (np.trunc(found + 1e-4) == steps[back])
    need(good.all(), "centers.parquet", "hold the centers that the last sums and counts give", "others")
    return run.holds.append("Centers are, to the lattice step, what the last sums and counts give.")


def check_fit(run):
    """A fit: all of its account, and what of its centers can be recomputed."""
    table, bounds = run.table("releases.parquet"), Bounds(run)
    need(pa.types.is_int64(table["values_lattice"].type.value_type), "releases.parquet", "hold whole lattice steps")
    for check_part in (check_releases, check_epsilon, check_centers):
        check_part(run, table.to_pylist(), bounds)


def check_spent(run, found):
    """An epsilon for which an upper bound is stated."""
    stated = run.privacy["epsilon"]
    need(0.98 * stated <= found <= stated * (1.0 + 1e-6), "privacy.json", f"state epsilon {found:.9g}", stated)
    run.holds.append(f"Mechanisms compose to epsilon {found:.9g}, and {stated} is stated.")


def check_profile(run):
    """A description of clusters, whose noise is PipelineDP's."""
    events, delta, epsilon = (run.privacy[name] for name in ("events", "delta", "epsilon"))
    accountant = pld.PLDAccountant(value_discretization_interval=max(1e-4, epsilon / 2e4))
    table, rows = run.table("profile.parquet"), run.manifest["max_rows_per_client"]
    need((run.privacy["unit"] == "client") == (rows is not None), "privacy.json", "have the unit of run.json")
    rows, k = rows or 1, len(set(table["cluster"].to_pylist()))
    for event in events:
        path, laplace, shape = event["path"], event["mechanism"] == "pipeline_dp_laplace", event["shape"]
        norms = {"means": rows * SUM, "percentiles": rows * (4 if laplace else 2)}
        norms["sizes"] = rows if path.endswith("/count") else math.sqrt(min(rows, k))
        wanted = norms.get(path.split("/")[1], math.sqrt(rows if shape is None else min(rows, math.prod(shape))))
        need(math.isclose(event["sensitivity"], wanted), path, f"have sensitivity {wanted}", event["sensitivity"])
        z, stddev = event["noise_multiplier"], event["noise_stddev"]
        good = math.isclose(stddev, z * wanted * (math.sqrt(2.0) if laplace else 1.0))
        need(good, path, "have noise multiplier x sensitivity", stddev)
        accountant.compose(dp_event.LaplaceDpEvent(z) if laplace else dp_event.GaussianDpEvent(z))
        delta -= event["threshold_delta"]
    run.holds.append(f"Sensitivities and noise of {len(events)} mechanisms are those of {rows} rows of a unit.")
    check_spent(run, float(accountant.get_epsilon(delta)))
    run.unknown.append("bounds of columns, which no file holds, and what their floating-point noise costs")


def check_silos(run):
    """Models of silos: what each of them spends by DP-SGD."""
    privacy, delta, silos, found = run.privacy, run.privacy["delta"], collections.defaultdict(list), []
    replaces, losses = privacy["adjacency"] == "replace_one", privacy["accountant"] == "pld"
    relation = NeighboringRelation.REPLACE_ONE if replaces else NeighboringRelation.ADD_OR_REMOVE_ONE
    terms = (privacy["neighboring_relation"], privacy["unit"], delta)
    same = terms == (relation.name.lower(), "record", run.manifest["delta"])
    need(same, "privacy.json", "have neighbors, unit and delta of a silo's rows", terms)
    for event in privacy["events"]:
        numbers = [event.get(name) for name in ("count", "noise_multiplier", "sampling_rate", "select_epsilon")]
        silos[event["client_id"]].append(tuple(numbers))
    for events in set(map(tuple, silos.values())):
        accountant = pld.PLDAccountant(relation, 1e-4) if losses else rdp.RdpAccountant(None, relation)
        for count, z, rate, choice in events:
            if choice is None:
                step = dp_event.GaussianDpEvent(z)
                step = dp_event.PoissonSampledDpEvent(rate, step) if rate < 1.0 else step
                step, count = dp_event.SelfComposedDpEvent(step, count), 1
            elif replaces:
                step = dp_event.RandomizedResponseDpEvent(2.0 / (1.0 + math.exp(choice)), 2)
            else:
                of = dp_event.DiscreteLaplaceDpEvent(choice / 2.0, 1)
                step = of if losses else dp_event.ZCDpEvent(choice**2 / 8.0)
            for _ in range(count):
                accountant.compose(step)
        found.append(float(accountant.get_epsilon(delta)))
    check_spent(run, max(found))
    run.unknown.append("the clipping norm of a step, which no file holds, and that silos sampled their batches")


def check_reports(run):
    """Private reports of clients: what one reveals, and what a shuffled batch of them does."""
    privacy, events = run.privacy, run.privacy["events"]
    epsilon, delta, local = privacy["epsilon"], privacy["delta"], privacy["local_epsilon"]
    terms, n = (privacy["unit"], privacy["neighboring_relation"]), events[0 if local is None else -1].get("min_batch")
    need(terms == ("client", "replace_one"), "privacy.json", "be of reports, for replacing one client", terms)
    honest = f"that {n or 'all'} devices drew by this law, in enough shares, and that nobody saw them unshuffled"
    run.unknown.append(honest if n else "that devices drew by this law")
    if local is None:
        noise, shares = events
        good = noise["delta"] == shares["delta"] == delta / 2.0 and noise["sensitivity"] == 2048.0 and n >= 19
        good = good and math.isclose(noise["noise_stddev"], noise["client_stddev"] * math.sqrt(n))
        need(good, "messages/noise", "have half of delta, 2048 lattice units, and the noise of all clients", noise)
        found = gaussian_mechanism.get_epsilon_gaussian(noise["noise_stddev"] / 2048.0, delta / 2.0)
        return check_spent(run, float(found) if noise["client_stddev"] > 3.0 else epsilon)
    choices = [each for each in events if each["mechanism"] == "subset_choice"]
    for each in choices:
        size, near, word = each["size"], each["near"], int(each["threshold"])
        with decimal.localcontext(decimal.Context(prec=50)):
            odds, most = decimal.Decimal(word * (size - near)), decimal.Decimal(each["epsilon"]).exp()
            odds /= (2**64 - word) * near
            need(0 < near < size and 1 / most <= odds <= most, each["path"], "keep its epsilon", odds)
    total = math.fsum(each["epsilon"] for each in choices)
    need(choices and total <= local, "privacy.json", "count all choices in local_epsilon", local)
    run.holds.append(f"Computed in 50 digits, one report is {local:.9g}-private for anyone who sees it.")
    if privacy["trust"] == "local":
        return need((epsilon, delta) == (local, 0.0), "privacy.json", "state the epsilon of one report", epsilon)
    odds = math.exp(local)
    spread = 8.0 * math.sqrt(odds * math.log(4.0 / delta) / n) + 8.0 * odds / n
    clones = math.log1p((odds - 1.0) / (odds + 1.0) * spread) if odds * 16.0 * math.log(2.0 / delta) <= n else local
    good = epsilon >= min(local, clones) * (1.0 - 1e-12) or blanket(*choices, epsilon, n) <= delta
    need(good, "privacy.json", f"state an epsilon that {n} shuffled reports keep", epsilon)
    return run.holds.append(f"Shuffled among {n} or more, reports are ({epsilon:.9g}, {delta:g})-private, as stated.")


def blanket(choice, epsilon, n):
    """Delta of n shuffled choices by their privacy blanket, lemma 5.3 of Balle, Bell, Gascon, Nissim (2019)."""
    size, near, a, inside = choice["size"], choice["near"], math.exp(epsilon), int(choice["threshold"]) / 2.0**64
    likely, rare, total = size * inside / near, size * (1.0 - inside) / (size - near), 0.0
    first, second, other = likely - a * rare, rare - a * likely, (likely if 2 * near > size else rare) * (1.0 - a)
    others, chances = binomial(n - 1, rare)
    for block in np.array_split(np.arange(len(others)), min(len(others), 60)):
        m, part = int(others[block[0]]) + 1, 0.0
        for s, chance in zip(*binomial(m, 2.0 * min(near, size - near) / size), strict=True):
            heads, weights = binomial(int(s), 0.5)
            part += chance * float(weights @ np.maximum(first * heads + second * (s - heads) + other * (m - s), 0.0))
        total += float(chances[block].sum()) * part / m
    return total


def binomial(n, p):
    """Values within ten stddevs of the mean, and their chances."""
    p = min(p, 1.0 - 1e-16)
    width = 10.0 * math.sqrt(n * p * (1.0 - p)) + 10.0
    values = np.arange(max(0, int(n * p - width)), min(n, int(n * p + width)) + 1)
    logs = np.array([math.lgamma(n + 1) - math.lgamma(x + 1) - math.lgamma(n - x + 1) for x in values.tolist()])
    return values, np.exp(logs + values * math.log(p) + (n - values) * math.log1p(-p))


def check_signature(run, key):
    """The Ed25519 signature of run.json (RFC 8032), and whose it is."""
    if not os.path.lexists(os.path.join(run.folder, "signature.json")):
        need(key is None, "signature.json", "be there, since a key was given", "none")
        run.unknown.append("that nobody rewrote all files, digests included: the run is not signed")
        return
    public, raw = (bytes.fromhex(run.json("signature.json")[name]) for name in ("public_key", "signature"))
    need(key in (None, public), "signature.json", "be by the given key")
    message = b"dapple run signature 1\n" + hashlib.sha256(run.read("run.json")).digest()
    p, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, p) % p

    def point(octets):
        y, odd = int.from_bytes(octets, "little") % 2**255, octets[31] >> 7
        x = pow((y * y - 1) * pow(d * y * y + 1, -1, p), (p + 3) // 8, p)
        x = x if (x * x * (d * y * y + 1) - y * y + 1) % p == 0 else x * pow(2, (p - 1) // 4, p) % p
        return (x if x & 1 == odd else p - x), y

    def add(one, two):
        (a, b), (e, f) = one, two
        t = d * a * e * b * f % p
        return (a * f + b * e) * pow(1 + t, -1, p) % p, (b * f + a * e) * pow(1 - t, -1, p) % p

    def times(n, one):
        two = times(n // 2, add(one, one)) if n > 1 else (0, 1)
        return add(two, one) if n % 2 else two

    s, base = int.from_bytes(raw[32:], "little"), point((4 * pow(5, -1, p) % p).to_bytes(32, "little"))
    digest = int.from_bytes(hashlib.sha512(raw[:32] + public + message).digest(), "little") % order
    good = len(raw) == 64 and s < order and times(s, base) == add(point(raw[:32]), times(digest, point(public)))
    need(good, "signature.json", "be a signature of run.json", "one of another file")
    run.holds.append(f"run.json is signed by the key {public.hex()}.")
    run.unknown.append("that this key was kept secret" if key else "whose key that is: give the one you trust by --key")


def check(folder, key, earlier):
    """Checks one folder, which may follow earlier ones; returns what its run.json says."""
    run = Run(folder)
    run.check_files()
    files, manifest = run.manifest["files"], run.manifest
    need("privacy.json" in files, "run.json", "be of a private release", "one without privacy.json")
    run.privacy = run.json("privacy.json")
    kinds = {"releases.parquet": check_fit, "profile.parquet": check_profile, "models.parquet": check_silos}
    next((kinds[name] for name in kinds if name in files), check_reports)(run)
    if "deployment.yaml" in files:
        stated = re.findall(r"^ *(epsilon|delta): (\S+)$", run.read("deployment.yaml").decode(), re.MULTILINE)
        good = stated and all(math.isclose(float(value), run.privacy[name]) for name, value in stated)
        need(good, "deployment.yaml", "state epsilon and delta of privacy.json", stated)
    previous = manifest.get("previous") or {}
    digests = {each["files"].get("centers.parquet") for each in earlier if each["run_id"] == previous.get("run_id")}
    need(not digests or previous["digest"] in digests, "run.json", "follow the centers of the run before it", "others")
    run.holds += [f"It names the centers of run {previous['run_id']} by their digest."] if digests else []
    check_signature(run, key)
    lines = [*(f"  holds: {each}" for each in run.holds), *(f"  cannot know: {each}." for each in run.unknown)]
    sys.stdout.write("\n".join([folder, *lines, ""]))
    return manifest


def main(words):
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Checks published runs of Dapple from their files alone.")
    parser.add_argument("folders", nargs="+", metavar="OUTPUT", help="output folder of a run; later ones after earlier")
    parser.add_argument("--key", metavar="HEX", help="64 hex digits: the Ed25519 key that must have signed the runs")
    given, code, runs = parser.parse_args(words), 0, []
    if given.key and not re.fullmatch(r"[0-9a-f]{64}", given.key):
        parser.error(f"--key must be 64 hex digits, as `dapple verify` prints them, got {given.key}")
    if others := [folder for folder in given.folders if not os.path.isdir(folder)]:
        parser.error(f"OUTPUT must be a folder, got {others[0]}")
    logging.disable(logging.WARNING)
    for folder in given.folders:
        try:
            runs.append(check(folder, given.key and bytes.fromhex(given.key), runs))
        except Exception as error:  # noqa: BLE001 - whatever a file makes a parser raise
            other, code = "" if isinstance(error, AssertionError) else "files must be as Dapple writes them, got ", 5
            sys.stdout.write(f"{folder}\n  REFUSED: {other}{error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
