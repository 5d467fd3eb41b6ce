"""Private topics of public texts: how good centers and names are beside those without noise, and an insertion attack.

Texts are the descriptions of packages that `apt-cache dumpavail` lists on this machine, with their sections as labels.
Vectors are TF-IDF reduced to 256 dimensions by scikit-learn's `TruncatedSVD`, of length 1; with `--sentences FOLDER`
also those of a sentence model (`benchmarks.sentence_vectors`). Tags are the debtags of packages that have some, as rows
of 256 numbers by `encode` of kind terms.
Terms are their words; the 5,000 most frequent ones stand for a public vocabulary. `cosine` is the mean inner product of
a text with its center over that of the same rounds without noise; `NMI` is with sections, over the same. A name is
`right` if it is among the three strongest by exact counts of the same clusters; clusters of 300 texts and more. It is
`false` if exact counts are not above the cluster's share (`benchmarks.false_names` counts these where all are false).
Runs are those of a fit, by its pure functions on arrays.

The attack is after Cliopatra (arXiv 2603.09781): its author knows the vector of one text, and inserts 50 copies of it,
without terms, so that they have a cluster of their own which the text falls into. Then the noisy counts of that cluster
show which of five diagnoses, of which the likeliest has odds of 22 %, the text has. The same scenes are given to a
replica of a pipeline of rules of thumb (`guessed_of_replica`), in the manner of Clio: its limits were set before any
attack was run, a language model takes no part, and its rate is no goal.

    python -m benchmarks.topics --out benchmarks/results/topics.md
"""

import argparse
import functools
import hashlib
import math
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, sentence_vectors
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import Terms
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.kmeans.spherical import names
from dapple_dp.transforms.numerics.kernel import row_pass

DELTA, MOST_PER_ROW = 1e-6, 16
SILENT = 1e-6
"""Variance of the noise, over the planned one, of a run without any."""
PARTS = ("tags", "texts", "attack", "clients")
LEAST_TEXTS, LEAST_WITH_TERM = 25, 5
"""Of a heuristic pipeline: texts of a cluster, and those that have a term, for either to be published."""
ODDS = np.array([0.22, 0.195, 0.195, 0.195, 0.195])


class Texts(NamedTuple):
    """Vectors (n, d), codes of terms (n, MOST_PER_ROW), sections (n,), vocabulary, who is kept."""

    vectors: NDArray[np.float32]
    codes: NDArray[np.float32]
    sections: NDArray[Any]
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
    sections = np.array([row["Section"] for row in rows])
    return Texts(vectors, _codes(terms, vocabulary), sections, vocabulary)


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
    sections = np.array([row["Section"] for row in rows])
    return Texts(vectors[kept], codes[kept], sections[kept], vocabulary, kept)


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
    protocol = protocol_of(config.algorithm)
    initial = protocol.initial_state(config, np.zeros((0, n_features)), n_features)
    privacy = config.privacy
    specs = protocol.round_specs(config, n_features, 0)
    plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
    key = hashlib.sha256(b"topics/%d" % draw).digest()
    row_pass.start()
    found: ClusterModel = loop.simulate(initial, protocol.rounds(config, plan), [block], key, variance=variance).model()
    return found


class Score(NamedTuple):
    """Mean inner product, NMI, names right of those in large clusters, false names, clusters with a name."""

    cosine: float
    nmi: float
    right: int
    asked: int
    false: int
    named: int


def score(config: Any, model: ClusterModel, found: Texts, rows: NDArray[np.int64], owner: NDArray[np.int64]) -> Score:
    """Score of a run on some rows, whose units are `owner`."""
    vectors, codes = found.vectors[rows], found.codes[rows].astype(np.int64)
    similar = vectors @ model.centers.T.astype(np.float32)
    labels = similar.argmax(axis=1)
    size, n_terms = len(model.centers), len(found.vocabulary)
    known, weights = codes >= 0, 1.0 / np.bincount(owner)[owner]
    cells = (labels[:, None] * n_terms + codes)[known]
    weighed = np.broadcast_to(weights[:, None], codes.shape)[known]
    exact = np.bincount(cells, weighed, size * n_terms).reshape(size, n_terms)
    sizes = np.bincount(labels, weights, size)
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


def attack(trials: int) -> list[str]:
    """Counts how often the attacker's best guess is the target's diagnosis."""
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
    """Largest share of right guesses by the odds of the likeliest that epsilon allows."""
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


def sentences(folder: Path, step: int) -> Texts:
    """Each `step`-th text by the sentence model."""
    known = texts()
    places = np.flatnonzero(known.kept)
    rows = np.flatnonzero(places % step == 0)
    vectors = sentence_vectors.of_texts(said()[::step], folder)[places[rows] // step]
    return Texts(vectors, known.codes[rows], known.sections[rows], known.vocabulary)


def parts(given: argparse.Namespace) -> Iterator[list[str]]:
    """Markdown lines, a part at a time."""
    epsilons, draws = (0.5, 1.0, 4.0), given.draws
    yield ["Medians over draws of the noise and of the start, with the range."]
    if "tags" in given.only:
        found = tags()
        title = (
            f"Unit record, {len(found.vectors):,} packages by their {len(found.vocabulary)} tags, k = 20, {draws} draws"
        )
        yield table(title, 20, "record", epsilons, by_row(found), draws, found)
        yield _unprojected(found)
    if given.sentences is not None:
        found = sentences(given.sentences, given.step)
        title = f"Unit record, {len(found.vectors):,} texts by a sentence model, k = 30, {draws} draws"
        yield table(title, 30, "record", epsilons, by_row(found), draws, found)
    if "texts" in given.only:
        title = f"Unit record, {len(texts().vectors):,} texts by TF-IDF, k = 30, {draws} draws"
        yield table(title, 30, "record", epsilons, by_row(texts()), draws)
    if "attack" in given.only:
        yield attack(given.trials)
    if "clients" in given.only:
        title = f"Unit client, {given.clients:,} clients of 1 to 20 texts, k = 20, {given.client_draws} draws"
        yield table(title, 20, "client", (2.0,), [assembled(given.clients)], given.client_draws)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--client_draws", type=int, default=5)
    parser.add_argument("--sentences", type=Path, help="folder of the environment and the vectors of the model")
    parser.add_argument(
        "--step", type=int, default=1, help="1 if the sentence model reads every text, n for every n-th"
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--trials", type=int, default=1000)
    arguments = parser.parse_args()
    lines = machine.heading("Private topics of public texts")
    with threadpool_limits(limits=1):
        for part in parts(arguments):
            lines += part
            measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
