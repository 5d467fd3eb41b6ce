"""Private topics of public texts: how good centers and names are beside those without noise, and an insertion attack.

Texts are the descriptions of packages that `apt-cache dumpavail` lists on this machine, with their sections as labels.
Vectors are TF-IDF reduced to 256 dimensions by scikit-learn's `TruncatedSVD`, of length 1; with `--sentences FOLDER`
also those of a sentence model (`benchmarks.sentence_vectors`). Tags are the debtags of packages that have some, as rows
of 256 numbers by `encode` of kind terms.
Terms are their words; the 5,000 most frequent ones stand for a public vocabulary. `cosine` is the mean inner product of
a text with its center over that of the same rounds without noise; `NMI` is with sections, over the same. A name is
`right` if it is among the three strongest by exact counts of the same clusters, without a limit per unit; clusters of
300 texts and more. It is `false` if exact counts are not above the cluster's share. Runs are those of a fit, by its
pure functions on arrays.

The attack is after Cliopatra (arXiv 2603.09781): its author knows the vector of one text, and inserts 50 copies of it,
without terms, so that they have a cluster of their own which the text falls into. Then the noisy counts of that cluster
show which of five diagnoses, of which the likeliest has odds of 22 %, the text has. The same scenes are given to a
replica of a pipeline of rules of thumb (`guessed_of_replica`), in the manner of Clio: its limits were set before any
attack was run, a language model takes no part, and its rate is no goal.

    python -m benchmarks.topics --out benchmarks/results/topics.md
"""

import argparse
import dataclasses
import functools
import hashlib
import json
import math
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, sentence_vectors
from schemas.kmeans.fit_config import validated
from schemas.kmeans.model import ClusterModel
from schemas.privacy.plan import ReleasePlan, RoundPlan
from schemas.tables.client_block import ClientBlock
from schemas.tables.encoder import Encoder
from schemas.tables.encoding import Terms
from transforms.kmeans.lloyd.specs import COUNTS, vector_spec
from transforms.kmeans.protocols import PROTOCOLS
from transforms.kmeans.simulated_fit import run_once
from transforms.kmeans.spherical import names
from transforms.numerics.privacy import noise
from transforms.privacy import accounting

DELTA, MOST_PER_ROW = 1e-6, 16
SILENT = 1e-6
"""Variance of the noise, over the planned one, of a run without any."""
STEPS = 2048.0
"""Lattice steps of a stddev where names are false: hardly more than the noise stage asks for."""
PARTS = ("false", "tags", "memory", "texts", "attack", "time", "maintainers", "clients")
LEAST_TEXTS, LEAST_WITH_TERM = 25, 5
"""Of a heuristic pipeline: texts of a cluster, and those that have a term, for either to be published."""
ODDS = np.array([0.22, 0.195, 0.195, 0.195, 0.195])


class Texts(NamedTuple):
    """Vectors (n, d), codes of terms (n, MOST_PER_ROW), sections (n,), maintainers (n,), vocabulary, who is kept."""

    vectors: NDArray[np.float32]
    codes: NDArray[np.float32]
    sections: NDArray[Any]
    people: NDArray[Any]
    vocabulary: tuple[str, ...]
    kept: Any = None


@functools.cache
def packages() -> list[dict[str, str]]:
    """Every package once: Package, Section, Maintainer, Description, and Tag where it has some."""
    raw = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, errors="replace", check=True)
    found: dict[str, dict[str, str]] = {}
    for entry in raw.stdout.split("\n\n"):
        joined = re.sub(r",\n ", ", ", entry)
        fields = dict(re.findall(r"^(Package|Section|Maintainer|Description|Tag): (.*)$", joined, re.MULTILINE))
        if fields.keys() >= {"Package", "Section", "Maintainer", "Description"}:
            found.setdefault(fields["Package"], fields)
    return list(found.values())


def tags() -> Texts:
    """Packages with debtags, as rows of these tags."""
    rows = [row for row in packages() if row.get("Tag")]
    terms = [sorted(set(row["Tag"].split(", "))) for row in rows]
    vocabulary = tuple(sorted({each for row in terms for each in row}))
    encoder = Encoder.learn(("t",), {"t": Terms(words=vocabulary)})
    vectors = encoder.encode(pa.table({"t": terms}), "packages").astype(np.float32)
    sections, people = (np.array([row[name] for row in rows]) for name in ("Section", "Maintainer"))
    return Texts(vectors, _codes(terms, vocabulary), sections, people, vocabulary)


def said() -> list[str]:
    """Facts about each package."""
    return [f"{row['Package'].replace('-', ' ')} {row['Description']}" for row in packages()]


@functools.cache
def texts() -> Texts:
    """Packages by the words of their descriptions, those that share words with others."""
    rows = packages()
    weigh = TfidfVectorizer(stop_words="english", sublinear_tf=True, min_df=5, max_df=0.1)
    weights = weigh.fit_transform(said())
    vectors = normalize(TruncatedSVD(256, random_state=0).fit_transform(weights)).astype(np.float32)
    frequent = np.argsort(-np.asarray((weights > 0).sum(axis=0)).ravel(), kind="stable")[:5000]
    vocabulary = tuple(weigh.get_feature_names_out()[frequent])
    codes = _codes(map(weigh.build_analyzer(), said()), vocabulary)
    kept = np.linalg.norm(vectors, axis=1) > 0.5
    sections, people = (np.array([row[name] for row in rows]) for name in ("Section", "Maintainer"))
    return Texts(vectors[kept], codes[kept], sections[kept], people[kept], vocabulary, kept)


def _codes(terms: Iterable[list[str]], vocabulary: tuple[str, ...]) -> NDArray[np.float32]:
    """The first known terms of each row as places in the vocabulary, -1 where there are fewer."""
    place = {word: code for code, word in enumerate(vocabulary)}
    found = [[place[word] for word in dict.fromkeys(row) if word in place][:MOST_PER_ROW] for row in terms]
    return np.array([row + [-1] * (MOST_PER_ROW - len(row)) for row in found], dtype=np.float32)


def job(k: int, epsilon: float, unit: str, vocabulary: tuple[str, ...], **spherical: Any) -> Any:
    """A job with names."""
    settings = {
        "algorithm": "spherical",
        "data": {"path": "-", "features": "x", "client_id": "who"},
        "n_clusters": k,
        "privacy": {"unit": unit, "epsilon": epsilon, "delta": DELTA},
        "clipping": {"client_rows": 10},
        "spherical": spherical,
        "names": {"column": "t", "words": vocabulary, "most_per_row": MOST_PER_ROW},
        "justification": {"privacy.unit": "public texts"},
    }
    return validated(settings)


def run(config: Any, block: ClientBlock, n_features: int, draw: int, variance: float = 1.0) -> ClusterModel:
    """One run; `draw` names its noise and its public start."""
    config = config.model_copy(update={"seed": draw})
    protocol = PROTOCOLS[config.algorithm]
    initial = protocol.initial_state(config, np.zeros((0, n_features)), n_features)
    privacy = config.privacy
    specs = protocol.round_specs(config, n_features, 0)
    plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
    key = hashlib.sha256(b"topics/%d" % draw).digest()
    return run_once(initial, protocol.rounds(config, plan), block, 1.0, key, variance)[0]


class Score(NamedTuple):
    """Mean inner product, NMI, names right of those in large clusters, false names, clusters with a name."""

    cosine: float
    nmi: float
    right: int
    asked: int
    false: int
    named: int


def score(config: Any, model: ClusterModel, found: Texts, rows: NDArray[np.int64], owner: NDArray[np.int64]) -> Score:
    """Of a run on some rows, whose units are `owner`."""
    vectors, codes = found.vectors[rows], found.codes[rows].astype(np.int64)
    similar = vectors @ model.centers.T.astype(np.float32)
    labels = similar.argmax(axis=1)
    size, n_terms = len(model.centers), len(found.vocabulary)
    known = codes >= 0
    cells = (labels[:, None] * n_terms + codes)[known]
    units = np.broadcast_to(owner[:, None], codes.shape)[known]
    distinct = np.unique(units * (size * n_terms) + cells) % (size * n_terms)
    exact = np.bincount(distinct, minlength=size * n_terms).reshape(size, n_terms).astype(np.float64)
    sizes = np.bincount(labels, 1.0 / np.bincount(owner)[owner], size)
    excess = names.excesses(exact, sizes / sizes.sum())
    given = names.cluster_names(config, model.releases)
    place = {word: code for code, word in enumerate(found.vocabulary)}
    right = asked = false = 0
    for cluster in range(size):
        called = [place[given.terms[row]] for row in given.of(cluster)]
        false += sum(excess[cluster, term] <= 0.0 for term in called)
        if np.count_nonzero(labels == cluster) >= 300:
            asked += 3
            right += len(set(called[:3]) & set(np.argsort(-excess[cluster])[:3].tolist()))
    nmi = normalized_mutual_info_score(found.sections[rows], labels)
    return Score(float(similar.max(axis=1).mean()), nmi, right, asked, false, len(set(given.clusters.tolist())))


def table(
    title: str,
    k: int,
    unit: str,
    epsilons: tuple[float, ...],
    blocks: list[Any],
    draws: int,
    found: Texts | None = None,
) -> list[str]:
    """Runs with noise over runs of the same starts without it; a block for each draw, in turn."""
    found, lines = found or texts(), ["", f"## {title}", ""]
    width = found.vectors.shape[1]
    lines += _head("epsilon", "cosine over no noise", "NMI over no noise", "names right", "false names", "with a name")
    quiet: dict[int, Score] = {}
    for epsilon in epsilons:
        config, scores = job(k, epsilon, unit, found.vocabulary), []
        for draw in range(draws):
            block, rows, owner = blocks[draw % len(blocks)]
            if draw not in quiet:
                quiet[draw] = score(config, run(config, block, width, draw, SILENT), found, rows, owner)
            scores.append(score(config, run(config, block, width, draw), found, rows, owner))
        shown = [
            [getattr(one, name) / getattr(quiet[draw], name) for draw, one in enumerate(scores)]
            for name in ("cosine", "nmi")
        ]
        right, asked, false = (sum(getattr(each, name) for each in scores) for name in ("right", "asked", "false"))
        named = np.mean([each.named for each in scores])
        ranges = [f"{np.median(each):.3f} ({min(each):.3f} to {max(each):.3f})" for each in shown]
        lines.append(
            _line(f"{epsilon:g}", *ranges, f"{right / max(asked, 1):.0%} of {asked}", false, f"{named:.1f} of {k}")
        )
    cosine, nmi = (np.median([getattr(each, name) for each in quiet.values()]) for name in ("cosine", "nmi"))
    right, asked = (sum(getattr(each, name) for each in quiet.values()) for name in ("right", "asked"))
    return [*lines, "", f"Without noise: cosine {cosine:.3f}, NMI {nmi:.3f}, names right {right / max(asked, 1):.0%}."]


def by_row(found: Texts) -> list[Any]:
    """Every text as its own unit."""
    rows = np.arange(len(found.vectors))
    return [(ClientBlock(np.hstack([found.vectors, found.codes])), rows, rows)]


def by_owner(owner: NDArray[np.int64], rows: NDArray[np.int64]) -> Any:
    """Rows of the texts, in clients."""
    found, order = texts(), np.argsort(owner, kind="stable")
    rows, owner = rows[order], owner[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner))]).astype(np.int64)
    return ClientBlock(np.hstack([found.vectors[rows], found.codes[rows]]), offsets), rows, owner


def assembled(n_clients: int) -> Any:
    """Clients with 1 to 20 texts: each text is of the client's own section with odds of 4 in 5, else of any."""
    found, rng = texts(), np.random.default_rng(0)
    sizes = rng.integers(1, 21, n_clients)
    owner = np.repeat(np.arange(n_clients), sizes)
    every = np.arange(len(found.sections))
    own = found.sections[rng.choice(every, n_clients)]
    rows = rng.choice(every, len(owner))
    for section in np.unique(own):
        at = np.flatnonzero((own[owner] == section) & (rng.random(len(owner)) < 0.8))
        rows[at] = rng.choice(np.flatnonzero(found.sections == section), len(at))
    return by_owner(owner, rows)


class World(NamedTuple):
    """Exact numbers where each term is exactly as frequent in each cluster, so that every name is a false one.

    Attributes:
      sizes: shape (k,): units of each cluster.
      term: units that have each of the terms.
      n_terms: V.
      stddev: of the noise of a count, in units.
      size_stddev: of that of a size.
    """

    sizes: NDArray[np.float64]
    term: float
    n_terms: int
    stddev: float
    size_stddev: float

    def names(self, runs: int, seed: int, multiplier: float = 1.0) -> NDArray[np.int64]:
        """Names in each of this many runs, by the noise stage; of `multiplier` times the stddev that the rule gets."""
        k, steps = len(self.sizes), STEPS * multiplier
        exact = np.outer(self.sizes / self.sizes.sum(), np.full(self.n_terms, self.term))
        numbers = [np.broadcast_to(self.sizes, (runs, k)), np.broadcast_to(exact, (runs, k, self.n_terms))]
        units = [self.size_stddev / STEPS, self.stddev / STEPS]
        specs = [vector_spec(str(index), each.shape, 0.5, meaning=COUNTS) for index, each in enumerate(numbers)]
        plans = [ReleasePlan(spec=each, noise_multiplier=steps / each.sensitivity) for each in specs]
        summed = [np.floor(each / unit).astype(np.int64).ravel() for each, unit in zip(numbers, units, strict=True)]
        plan = RoundPlan(path="false", releases=tuple(plans))
        key = hashlib.sha256(b"false names/%d" % seed).digest()
        sizes, counts = noise.draw_release(key, plan, np.concatenate(summed))
        words = tuple(map(str, range(self.n_terms)))
        drawn = zip(sizes.values * units[0], counts.values * units[1], strict=True)
        given = (names.named(found, self.stddev, size, self.size_stddev, words) for size, found in drawn)
        return np.array([len(each.terms) for each in given])


WORLDS = {
    "ten alike, sharp sizes": World(np.full(10, 1000.0), 500.0, 20, 20.0, 0.02),
    "ten alike, noisy sizes": World(np.full(10, 1000.0), 500.0, 20, 20.0, 20.0),
    "one of ten has nine in ten": World(np.array([9000.0] + [111.0] * 9), 5000.0, 20, 5.0, 40.0),
    "two of twenty, the others empty": World(np.array([5000.0] * 2 + [0.0] * 18), 5000.0, 20, 5.0, 40.0),
    "few units": World(np.array([50.0] + [10.0] * 9), 100.0, 20, 5.0, 40.0),
    "thirty, 100 terms": World(np.full(30, 300.0), 200.0, 100, 40.0, 40.0),
}


def false_names(runs: int) -> list[str]:
    """How many names noise alone gives."""
    lines = [
        "",
        "## False names",
        "",
        f"{runs:,} runs of the noise stage; each term is exactly as frequent in each cluster, so every name is false.",
        "",
    ]
    lines += _head("clusters", "names a run", "95 % interval", "no more than")
    for title, world in WORLDS.items():
        drawn = np.concatenate([world.names(1000, seed) for seed in range(runs // 1000)])
        mean, half = drawn.mean(), 1.96 * max(drawn.std(), 1.0 / math.sqrt(len(drawn))) / math.sqrt(len(drawn))
        lines.append(
            _line(title, f"{mean:.4f}", f"{max(mean - half, 0.0):.4f} to {mean + half:.4f}", names.FALSE_NAMES)
        )
    return lines


def attack(trials: int) -> list[str]:
    """How often the attacker's best guess is the target's diagnosis."""
    terms = tuple(f"diagnosis {index}" for index in range(len(ODDS)))
    lines = ["", "## The insertion attack", "", f"{trials} targets each; 2,000 other texts, unit record.", ""]
    lines += _head("pipeline", "guessed", "95 % interval", "no more than")
    rows: list[tuple[str, float, Any]] = [("heuristic replica", math.inf, guessed_of_replica)]
    for epsilon, variance in ((1.0, SILENT), (1.0, 1.0), (0.5, 1.0)):
        silent = variance == SILENT
        guess = functools.partial(guessed, job(6, epsilon, "record", terms, steps=8), variance=variance)
        rows.append(("noise off" if silent else f"epsilon {epsilon:g}", math.inf if silent else epsilon, guess))
    for title, epsilon, guess in rows:
        right = sum(guess(scene) == scene.truth for scene in map(Scene.of, range(trials)))
        low, high = _wilson(right, trials)
        limit = "-" if math.isinf(epsilon) else f"{most_guessed(epsilon):.1%}"
        lines.append(_line(title, f"{right / trials:.1%}", f"{low:.1%} to {high:.1%}", limit))
    said = "By odds alone the best guess is right in 22 %. The bound is that of epsilon for one text, delta left out."
    return [*lines, "", said]


def most_guessed(epsilon: float) -> float:
    """How often a guess by odds of the likeliest may be right at epsilon."""
    return float(math.exp(epsilon) * ODDS[0] / (1.0 - ODDS[0] + math.exp(epsilon) * ODDS[0]))


class Scene(NamedTuple):
    """Others' texts, 50 copies of a target's vector, and last the target's text, whose one term is the truth.

    Attributes:
      vectors: shape (2051, 32).
      codes: shape (2051, MOST_PER_ROW): terms.
      target: shape (32,): its vector, which the attacker knows.
      truth: its term.
      trial: number of the scene.
    """

    vectors: NDArray[np.float64]
    codes: NDArray[np.float64]
    target: NDArray[np.float64]
    truth: int
    trial: int

    @classmethod
    def of(cls, trial: int) -> "Scene":
        """One scene."""
        rng, d = np.random.default_rng([trial, 1]), 32
        topics = normalize(rng.normal(size=(4, d)))
        others = normalize(topics[rng.integers(0, 4, 2000)] + 0.1 * rng.normal(size=(2000, d)))
        target = normalize(rng.normal(size=(1, d)))
        truth = int(rng.choice(len(ODDS), p=ODDS))
        vectors = np.vstack([others, np.repeat(target, 51, axis=0)])
        codes = np.full((len(vectors), MOST_PER_ROW), -1.0)
        codes[:2000, 0], codes[-1, 0] = rng.choice(len(ODDS), 2000, p=ODDS), truth
        return cls(vectors, codes, target[0], truth, trial)


def guessed(config: Any, scene: Scene, variance: float = 1.0) -> int:
    """The likeliest term of the target given one noisy count of 1 among zeros, by Bayes' rule."""
    block = ClientBlock(np.hstack([scene.vectors, scene.codes]))
    model = run(config, block, scene.vectors.shape[1], scene.trial, variance)
    counts = model.releases[-1].decoded[int((model.centers @ scene.target).argmax())]
    stddev = max(model.releases[-1].stddev, 0.05)
    return int((np.log(ODDS) + counts / stddev**2).argmax())


def guessed_of_replica(scene: Scene) -> int:
    """The likeliest term of the target, given what a heuristic pipeline publishes of its cluster.

    The pipeline: k-means; clusters of fewer than `LEAST_TEXTS` are withheld; the summary of a cluster is its terms
    of the largest share among its texts over that among all, of terms that `LEAST_WITH_TERM` of its texts have. So the
    attacker gives each term to one copy less than that.
    """
    codes = scene.codes[:, 0].astype(int)
    copies = LEAST_WITH_TERM - 1
    codes[2000 : 2000 + copies * len(ODDS)] = np.repeat(np.arange(len(ODDS)), copies)
    found = KMeans(6, n_init=3, random_state=scene.trial).fit(scene.vectors)
    mine = codes[found.labels_ == found.predict(scene.target[None])[0]]
    counts, every = (np.bincount(each[each >= 0], minlength=len(ODDS)) for each in (mine, codes))
    shown = (counts >= LEAST_WITH_TERM) & (len(mine) >= LEAST_TEXTS)
    lift = np.where(shown, counts / np.maximum(every, 1), 0.0)
    return int(lift.argmax()) if shown.any() else int(ODDS.argmax())


def _wilson(right: int, trials: int) -> tuple[float, float]:
    """Interval of a share that holds it in 95 % of samples."""
    z, share = 1.96, right / trials
    middle = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    return middle - half, middle + half


def speed(n_rows: int, turns: int = 3) -> list[str]:
    """CPU time of the rounds of a fit on rows in memory, over an iteration of scikit-learn's, in turns."""
    rng, k, d = np.random.default_rng(0), 50, 384
    rows = normalize(rng.normal(size=(n_rows, d)).astype(np.float32))
    config = job(k, 1.0, "record", ("a",)).model_copy(update={"names": None})
    protocol = PROTOCOLS[config.algorithm]
    fine = protocol.initial_state(config, np.zeros((0, d)), d)
    specs = protocol.round_specs(config, d, 0)
    plan = accounting.calibrate(config.privacy.unit, specs, 1.0, DELTA, protocol.allocation(config))
    statistic = protocol.rounds(config, plan)[0].statistic
    states = [fine, dataclasses.replace(fine, centers=fine.centers[:k])]
    start, ours, theirs = rows[:k].astype(np.float64), [], []
    for _ in range(turns):
        ours.append([_seconds(functools.partial(statistic, ClientBlock(rows), each.broadcast())) for each in states])
        few = [KMeans(k, init=start, n_init=1, max_iter=each, algorithm="lloyd", tol=0.0) for each in (1, 11)]
        once, more = (_seconds(functools.partial(each.fit, rows)) for each in few)
        theirs.append((more - once) / (few[1].n_iter_ - few[0].n_iter_))
    iteration, (slow, quick) = np.median(theirs), np.median(ours, axis=0)
    n_steps, n_fine = config.spherical.n_steps, fine.settings.fine_rounds
    mean = (n_fine * slow + (n_steps - n_fine) * quick) / n_steps
    lines = [
        "",
        "## Time",
        "",
        f"{n_rows:,} rows of {d} numbers (float32), k = {k}, one thread, medians of {turns}.",
        "",
    ]
    lines += _head("what", "CPU s", "of an iteration of scikit-learn")
    for title, found in (
        ("an iteration of scikit-learn's k-means", iteration),
        (f"a round with {len(fine.centers)} centers, {n_fine} of {n_steps}", slow),
        (f"a round with {k} centers, {n_steps - n_fine} of {n_steps}", quick),
        ("the mean of a fit's rounds", mean),
    ):
        lines.append(_line(title, f"{found:.2f}", f"{found / iteration:.2f}"))
    return lines


def _seconds(work: Callable[[], object]) -> float:
    """CPU seconds of some work."""
    before = time.process_time()
    work()
    return time.process_time() - before


def _head(*cells: str) -> list[str]:
    return [_line(*cells), _line(*["---"] * len(cells))]


def _line(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _unprojected(found: Texts) -> list[str]:
    """NMI of scikit-learn's k-means on the terms themselves, one number for each of the vocabulary."""
    rows = np.zeros((len(found.codes), len(found.vocabulary)), dtype=np.float32)
    place, column = np.nonzero(found.codes >= 0)
    rows[place, found.codes[place, column].astype(int)] = 1.0
    labels = [KMeans(20, n_init=1, random_state=seed).fit_predict(normalize(rows)) for seed in range(3)]
    known = np.median([normalized_mutual_info_score(found.sections, each) for each in labels])
    return ["", f"k-means of scikit-learn on the tags themselves: NMI {known:.3f} (median of three)."]


def memory(n_rows: int) -> list[str]:
    """A whole `dapple topics` on rows of 8 of 20,000 terms, in a process of its own."""
    rng, n_terms, size = np.random.default_rng(0), 20_000, 8
    words = [f"code{index}" for index in range(n_terms)]
    with tempfile.TemporaryDirectory() as folder:
        codes = rng.integers(0, 400, (n_rows, size)) + 400 * rng.integers(0, 50, n_rows)[:, None]
        lists = pa.ListArray.from_arrays(np.arange(0, size * n_rows + 1, size, dtype=np.int32), pa.array(codes.ravel()))
        terms = pa.ListArray.from_arrays(lists.offsets, pa.array(words).take(lists.values))
        pq.write_table(pa.table({"codes": terms}), f"{folder}/rows.parquet", row_group_size=100_000)
        Path(folder, "vocabulary.txt").write_text("\n".join(words))
        settings = {
            "algorithm": "spherical",
            "data": {"path": f"{folder}/rows.parquet", "features": ["codes"]},
            "encode": {"codes": {"kind": "terms", "vocabulary": f"{folder}/vocabulary.txt"}},
            "n_clusters": 30,
            "privacy": {"unit": "record", "epsilon": 1.0, "delta": DELTA},
            "names": {"column": "codes", "vocabulary": f"{folder}/vocabulary.txt"},
            "spherical": {"steps": 3},
            "justification": {"privacy.unit": "made rows"},
        }
        Path(folder, "job.yaml").write_text(json.dumps(settings))
        words_of = ("topics", "--config", f"{folder}/job.yaml", "--output", f"{folder}/out")
        subprocess.run([sys.executable, "-m", "pipelines", *words_of], check=True, capture_output=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        named = len(set(pq.read_table(f"{folder}/out/names.parquet")["cluster"].to_pylist()))
    said = f"{n_rows:,} rows of {size} of {n_terms:,} terms, k = 30, 3 rounds and names, unit record"
    found = f"peak of the process {used.ru_maxrss / 1024:,.0f} MiB, {used.ru_utime + used.ru_stime:.0f} CPU s"
    return ["", "## Memory", "", f"{said}: {found}; {named} of 30 clusters have a name."]


def sentences(folder: Path, step: int) -> Texts:
    """Each `step`-th text by the sentence model."""
    known = texts()
    places = np.flatnonzero(known.kept)
    rows = np.flatnonzero(places % step == 0)
    vectors = sentence_vectors.of_texts(said()[::step], folder)[places[rows] // step]
    return Texts(vectors, known.codes[rows], known.sections[rows], known.people[rows], known.vocabulary)


def parts(given: argparse.Namespace) -> Iterator[list[str]]:
    """Markdown lines, a part at a time."""
    epsilons, draws = (0.5, 1.0, 4.0), given.draws
    yield ["Medians over draws of the noise and of the start, with the range."]
    if "false" in given.only:
        yield false_names(given.runs)
    if "tags" in given.only:
        found = tags()
        title = (
            f"Unit record, {len(found.vectors):,} packages by their {len(found.vocabulary)} tags, k = 20, {draws} draws"
        )
        yield table(title, 20, "record", epsilons, by_row(found), draws, found)
        yield _unprojected(found)
    if "memory" in given.only:
        yield memory(given.sparse_rows)
    if given.sentences is not None:
        found = sentences(given.sentences, given.step)
        title = f"Unit record, {len(found.vectors):,} texts by a sentence model, k = 30, {draws} draws"
        yield table(title, 30, "record", epsilons, by_row(found), draws, found)
    if "texts" in given.only:
        title = f"Unit record, {len(texts().vectors):,} texts by TF-IDF, k = 30, {draws} draws"
        yield table(title, 30, "record", epsilons, by_row(texts()), draws)
    if "attack" in given.only:
        yield attack(given.trials)
    if "time" in given.only:
        yield speed(given.rows)
    if "maintainers" in given.only:
        _, people = np.unique(texts().people, return_inverse=True)
        title = f"Unit client, {people.max() + 1:,} maintainers, k = 20, {draws} draws"
        yield table(title, 20, "client", (1.0, 2.0, 4.0), [by_owner(people, np.arange(len(people)))], draws)
    if "clients" in given.only:
        title = f"Unit client, {given.clients:,} clients of 1 to 20 texts, k = 20, {given.client_draws} draws"
        yield table(title, 20, "client", (2.0,), [assembled(given.clients)], given.client_draws)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--client_draws", type=int, default=5)
    parser.add_argument("--sparse_rows", type=int, default=1_000_000)
    parser.add_argument("--sentences", type=Path, help="folder of the environment and the vectors of the model")
    parser.add_argument(
        "--step", type=int, default=1, help="1 if the sentence model reads every text, n for every n-th"
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=100_000, help="of noise where every name is false")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=250_000)
    arguments = parser.parse_args()
    lines = machine.heading("Private topics of public texts")
    with threadpool_limits(limits=1):
        for part in parts(arguments):
            lines += part
            measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
