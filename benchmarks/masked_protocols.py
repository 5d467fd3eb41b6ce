"""Protocols under masks whose noise clients split: cost beside central trust, variance, bytes, dropouts, two parties.

`vectors` draws the shares of all senders of a round of 1,010 words with the code of the jobs. Masks cancel bit for bit,
so they are left out of the sum and measured on their own. `pipelines` runs whole jobs of `fit`. `protocols` runs all
rounds of a job with statistics of those who are present and their shares. `two parties` takes an iteration of FastLloyd
apart, as Table 3 of the paper does, with a round trip of 0.25 ms that is added, not waited for.

    python -m benchmarks.masked_protocols --out benchmarks/results/masked_protocols.md
"""

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks import measurement, mixture
from benchmarks.central_tree import job as tree_job
from benchmarks.machine import heading
from benchmarks.papers.fastlloyd import Figure, lloyd_job, nicv
from benchmarks.papers.fastlloyd_scaling import METHODS, Size, separable
from pipelines.kmeans.fit import execute, read_release
from pipelines.kmeans.plan.planned_fit import plan_fit
from pipelines.run.options import beam_options
from schemas.kmeans.fit_config import validated
from schemas.privacy.noise_shares import ShareLaw
from schemas.privacy.plan import Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from schemas.tables.client_block import ClientBlock
from transforms.numerics.masked.neighbors import circle, parameters
from transforms.numerics.masked.pairwise_masks import Neighbor, PairwiseClient
from transforms.numerics.masked.shared_masks import RoundMasks, message_bytes
from transforms.numerics.privacy.noise import draw_release, releases_of
from transforms.numerics.privacy.noise_shares import draw_share, stated

N_CLUSTERS, N_FEATURES = 10, 100
SIZE = N_CLUSTERS * (N_FEATURES + 1)
CORRUPT, DROPOUT = 0.05, 0.3
KEPT = ShareLaw(threshold=2, corrupt=CORRUPT, dropout=DROPOUT)
ROUND_TRIP_MS = 0.25
N_SENDERS, SEEDS, REPEATS = 100, 10, 30
MEASURED_CLIENTS, REVEALING = 310, 2
KEYS_BYTES, LETTER_BYTES = 80, 120
COUNTERSIGNATURE_BYTES = 140
"""A line of JSON and a signature."""
TABLE_3 = (
    (10_000, 2, 2, 3.03),
    (10_000, 2, 5, 3.24),
    (10_000, 5, 2, 4.32),
    (10_000, 5, 5, 4.95),
    (100_000, 2, 2, 12.57),
    (100_000, 2, 5, 13.17),
    (100_000, 5, 2, 22.05),
    (100_000, 5, 5, 22.56),
)
"""Rows, clusters, features, and milliseconds of an iteration that the paper reports."""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 1_000, 10_000])
    parser.add_argument("--most_pairwise", type=int, default=1_000, help="clients of a whole job with pairwise masks")
    names = ("vectors", "two_parties", "protocols", "pipelines")
    parser.add_argument("--sections", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    lines = heading("Masked protocols whose noise clients split")
    known = (
        lambda: vectors(arguments.sizes),
        two_parties,
        protocols,
        lambda: pipelines(arguments.sizes, arguments.most_pairwise),
    )
    for name, section in zip(names, known, strict=True):
        lines += section() if name in arguments.sections else [f"`{name}` was not run.", ""]
        print("\n".join(lines), flush=True)
    measurement.show(lines, arguments.out)


def plan() -> RoundPlan:
    """A round of means of clusters."""
    shapes = {"sums": (N_CLUSTERS, N_FEATURES), "counts": (N_CLUSTERS,)}
    law = {"mechanism": Mechanism.DISCRETE_GAUSSIAN, "sensitivity": 1 << 20, "share": 1.0}
    specs = [ReleaseSpec(name=name, shape=shape, **law) for name, shape in shapes.items()]
    return RoundPlan(path="bench/round", releases=tuple(ReleasePlan(spec=s, noise_multiplier=10.0) for s in specs))


def sum_of_shares(law: RoundPlan, senders: list[int], counted: int, label: str) -> NDArray[np.int64]:
    """What the shares of some senders add to a sum."""
    nothing, total = np.zeros(law.size, dtype=np.int64), np.zeros(law.size, dtype=np.int64)
    for sender in senders:
        key = hashlib.sha256(f"{label} {sender}".encode()).digest()
        total += draw_share(key, b"sender", law, nothing, counted)
    return total


def vectors(sizes: list[int]) -> list[str]:
    """Variance of sums, and the work and bytes of one client, by number of clients."""
    lines = [f"## Vectors of {SIZE:,} words, pairwise masks, corrupt {CORRUPT:g}, dropout {DROPOUT:g}", ""]
    columns = ("clients", "gone", "shares that count", "variance factor, predicted", "measured")
    lines += ["| " + " | ".join((*columns, "chi-square p")) + " |", "| --- " * (len(columns) + 1) + "|"]
    for n_clients in sizes:
        for gone in (0.0, 0.1, DROPOUT):
            present = list(range(n_clients - int(gone * n_clients)))
            counted = KEPT.counted(n_clients)
            noise = sum_of_shares(plan(), present, counted, f"vectors {gone}")
            variance = plan().releases[0].noise_stddev ** 2
            factor, found = len(present) / counted, float(np.mean(noise.astype(np.float64) ** 2) / variance)
            below = stats.chi2.cdf(found * SIZE / factor, SIZE)
            cells = (f"{n_clients:,}", f"{gone:.0%}", f"{counted:,}", f"{factor:.3f}", f"{found:.3f}")
            lines.append("| " + " | ".join((*cells, f"{2 * min(below, 1 - below):.2f}")) + " |")
    return [*lines, "", *client_work(sizes)]


def client_work(sizes: list[int]) -> list[str]:
    """CPU and bytes of one client in a round, without and with its share of the noise."""
    columns = ("clients", "neighbors", "CPU ms, plain", "share of noise, ms", "ratio", "bytes, plain", "ratio")
    lines = ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    counted = KEPT.counted
    for n_clients in sizes:
        graph = parameters(n_clients, CORRUPT, DROPOUT)
        plain, share = pairwise_seconds(n_clients), share_seconds(counted(n_clients))
        n_bytes = 8 * SIZE + KEYS_BYTES + LETTER_BYTES * graph.n_neighbors
        cells = (f"{n_clients:,}", f"{graph.n_neighbors}", f"{plain * 1e3:.1f}", f"{share * 1e3:.2f}")
        cells = (*cells, f"{1 + share / plain:.3f}", f"{n_bytes:,}")
        lines.append("| " + " | ".join((*cells, f"{(n_bytes + COUNTERSIGNATURE_BYTES) / n_bytes:.3f}")) + " |")
    masks = RoundMasks(bytes(32), b"bench")
    vector = np.zeros((1, SIZE), dtype=np.int64)
    mask = statistics.median(cpu(lambda: masks.mask([b"sender"], vector)) for _ in range(200))
    lines += [
        "",
        f"CPU: keys, letters, mask and shares of secrets of one of at most {MEASURED_CLIENTS} clients with the "
        "neighbors that all would need. Bytes: keys, letters and message; with noise a countersignature more. With a "
        f"shared secret a client masks in {mask * 1e6:.0f} us and draws its share in "
        f"{share_seconds(counted(1_000)) * 1e6:.0f} us: draws cost more than masks there.",
        "",
    ]
    return lines


def share_seconds(counted: int) -> float:
    """CPU of one share."""
    nothing, law = np.zeros(SIZE, dtype=np.int64), plan()
    draws = (cpu(lambda name=bytes([each]): draw_share(bytes(32), name, law, nothing, counted)) for each in range(100))
    return statistics.median(draws)


def pairwise_seconds(n_clients: int) -> float:
    """CPU of one client in a round of pairwise masks, its keys included."""
    graph, n = parameters(n_clients, CORRUPT, DROPOUT), min(n_clients, MEASURED_CLIENTS)
    around = circle(n, graph.n_neighbors, bytes(16)).tolist()
    clients = [PairwiseClient(number.to_bytes(32, "big"), number, b"bench") for number in range(n)]
    keys: list[Any] = []
    letters: list[dict[int, bytes]] = []
    vector = np.arange(SIZE, dtype=np.int64)
    seconds = cpu(lambda: keys.extend(client.advertise() for client in clients)) / n
    hoods = [[Neighbor(other, keys[other]) for other in around[number]] for number in range(n)]
    share = cpu(lambda: letters.extend(c.share(hoods[c.number], graph.threshold, vector) for c in clients))
    mask = cpu(lambda: [c.mask(hoods[c.number], vector) for c in clients])
    present = frozenset(range(n))
    inboxes = [
        {owner: (Neighbor(owner, keys[owner]), letters[owner][number]) for owner in around[number]}
        for number in range(min(n, REVEALING))
    ]
    reveal = cpu(lambda: [clients[number].reveal(inbox, present) for number, inbox in enumerate(inboxes)])
    return seconds + (share + mask) / n + reveal / len(inboxes)


def cpu(work: Callable[[], object]) -> float:
    """Seconds of processors."""
    start = time.process_time()
    work()
    return time.process_time() - start


def pipelines(sizes: list[int], most_pairwise: int) -> list[str]:
    """Whole jobs of `fit`, client level, at the same epsilon."""
    columns = ("clients", "trust", "wall s", "CPU s", "CPU ms per client", "bytes per client", "cost beside central")
    lines = ["## Whole jobs of `fit`: 50 rows per client, d = 20, k = 10, epsilon 4, client level", ""]
    lines += ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for n_clients in sizes:
        kinds = ("central", "shared_secret") + (("pairwise",) if n_clients <= most_pairwise else ())
        with tempfile.TemporaryDirectory() as folder:
            drawn = mixture.draw(0, 50 * n_clients, n_features=20)
            mixture.write_lake(Path(folder) / "lake", drawn, n_files=4, group_rows=5_000, client_rows=50)
            central = None
            for kind in kinds:
                found = fitted(Path(folder), kind, n_clients, drawn.rows.astype(np.float64))
                central = central or found.cost
                cells = (f"{n_clients:,}", kind, f"{found.wall:.1f}", f"{found.cpu:.1f}")
                cells = (*cells, f"{found.cpu / n_clients * 1e3:.1f}", f"{found.n_bytes:,}")
                lines.append("| " + " | ".join((*cells, f"{found.cost / central:.3f}")) + " |")
                print(lines[-1], flush=True)
    return [
        *lines,
        "",
        "Masked: `noise_by: clients`, nobody gone; the threshold is 70% of the clients. Cost is that of all rows by "
        "their nearest center. Bytes: all messages of a client, and with pairwise masks its keys and letters. CPU is "
        f"that of all roles. Jobs with pairwise masks and more than {most_pairwise:,} clients were not run.",
        "",
    ]


class Fitted(NamedTuple):
    """Seconds of a job, the cost of its centers, and the bytes that a client sends."""

    wall: float
    cpu: float
    cost: float
    n_bytes: int


def fitted(folder: Path, kind: str, n_clients: int, rows: NDArray[np.float64]) -> Fitted:
    """The result of one `fit` under a kind of masks, with its seconds."""
    settings = mixture.config(folder / "lake", "client", 4.0)
    if kind != "central":
        section = {"scheme": kind, "noise_by": "clients", "threshold": int(0.7 * n_clients)}
        section |= {"corrupt": 0.0 if kind == "shared_secret" else CORRUPT, "dropout": DROPOUT}
        settings |= {"trust": "masked", "masked": section}
    job = plan_fit(validated(settings))
    wall, processors = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as out:
        result = read_release(job, out, execute(job, beam_options([]), out))
    seconds = time.perf_counter() - wall, time.process_time() - processors
    n_bytes = 0 if kind == "central" else sum(sent(each.plan.size, kind, n_clients) for each in job.rounds)
    return Fitted(*seconds, nicv(rows, result.model.centers), n_bytes)


def sent(size: int, kind: str, n_clients: int) -> int:
    """Bytes that a client sends in a round."""
    if kind == "shared_secret":
        return message_bytes(size)
    return message_bytes(size) + KEYS_BYTES + LETTER_BYTES * parameters(n_clients, CORRUPT, DROPOUT).n_neighbors


def protocols() -> list[str]:
    """FastLloyd and the central tree with dropouts and colluders: accuracy, bytes, rounds."""
    size = Size(4, 8)
    rows = [separable(size, 50_000, seed)[0] for seed in range(SEEDS)]
    jobs = {
        "FastLloyd": lambda seed: lloyd_job(rows[seed], 8, METHODS["FastLloyd"], 1.0, seed),
        "central tree": lambda seed: tree_job(Path("rows"), 2.0, 8, seed=seed, **_public(rows[seed])),
    }
    lines = [f"## Protocols over {N_SENDERS} clients: 50,000 rows, d = 4, k = 8, epsilon 1", ""]
    columns = ("protocol", "noise", "gone", "NICV", "rounds", "bytes of a client")
    lines += ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for name, job in jobs.items():
        for noise, gone, law in (
            ("central", 0.0, None),
            ("central", DROPOUT, None),
            ("shares, corrupt 0", 0.0, ShareLaw(threshold=2, dropout=DROPOUT)),
            ("shares, corrupt 0", DROPOUT, ShareLaw(threshold=2, dropout=DROPOUT)),
            ("shares, corrupt 5%", 0.0, ShareLaw(threshold=2, corrupt=CORRUPT, dropout=DROPOUT)),
            ("shares, corrupt 5%", DROPOUT, ShareLaw(threshold=2, corrupt=CORRUPT, dropout=DROPOUT)),
        ):
            found = [played(job(seed), rows[seed], law, gone, f"{name} {seed}") for seed in range(SEEDS)]
            n_bytes = found[0].n_bytes if law else 0
            cells = (name, noise, f"{gone:.0%}", str(Figure.of(np.array([each.cost for each in found]))))
            lines.append("| " + " | ".join((*cells, f"{found[0].n_rounds}", f"{n_bytes:,}")) + " |")
    return [
        *lines,
        "",
        f"Means of {SEEDS} mixtures with 95% intervals. In every round others are gone. NICV is that of all rows. "
        "Bytes: messages, keys and letters of pairwise masks and countersignatures, all rounds together.",
        "",
    ]


def _public(rows: NDArray[np.float64]) -> dict[str, Any]:
    """Settings of the tree that stand for the same data and budget."""
    data = {"path": "rows", "features": [f"x{i}" for i in range(rows.shape[1])], "public_rows": len(rows)}
    return {"data": data, "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}}


class Played(NamedTuple):
    """NICV of a run, its rounds, and the bytes that a client has sent."""

    cost: float
    n_rounds: int
    n_bytes: int


def played(
    settings: dict[str, Any], rows: NDArray[np.float64], law: ShareLaw | None, gone: float, label: str
) -> Played:
    """All rounds of a job, each with senders that are present at random."""
    fit = plan_fit(validated(settings))
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(label.encode()).digest()[:4], "big"))
    owner = np.arange(len(rows)) % N_SENDERS
    state: Any = fit.initial
    for each in fit.rounds:
        present = np.sort(rng.permutation(N_SENDERS)[int(gone * N_SENDERS) :])
        exact = each.statistic(ClientBlock(rows[np.isin(owner, present)]), state)
        if law is None:
            state = each.step(state, draw_release(hashlib.sha256(label.encode()).digest(), each.plan, exact))
            continue
        counted = law.counted(N_SENDERS)
        noised = exact + sum_of_shares(each.plan, present.tolist(), counted, f"{label} {gone}")
        state = each.step(state, stated(releases_of(each.plan, noised), counted, len(present)))
    n_neighbors = parameters(N_SENDERS, CORRUPT, DROPOUT).n_neighbors
    around = KEYS_BYTES + LETTER_BYTES * n_neighbors + COUNTERSIGNATURE_BYTES
    n_bytes = sum(8 * each.plan.size + around for each in fit.rounds)
    return Played(nicv(rows, state.model().centers), len(fit.rounds), n_bytes)


def two_parties() -> list[str]:
    """An iteration of FastLloyd between two clients and a server, in the units of the paper's Table 3."""
    lines = ["## Two parties: one iteration of FastLloyd with a shared secret, ms", ""]
    columns = ("rows", "k", "d", "bytes", "noise by server", "noise by clients", "paper, LAN")
    lines += ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for n_rows, n_clusters, n_features, paper in TABLE_3:
        rows = separable(Size(n_features, n_clusters), n_rows, 0)[0]
        fit = plan_fit(validated(lloyd_job(rows, n_clusters, METHODS["FastLloyd"], 1.0, 0)))
        times = [[iteration(fit, rows, split, turn) * 1e3 for turn in range(REPEATS)] for split in (False, True)]
        cells = [str(Figure.of(np.array(each) + ROUND_TRIP_MS)) for each in times]
        n_bytes = message_bytes(fit.rounds[0].plan.size)
        lines.append(f"| {n_rows:,} | {n_clusters} | {n_features} | {n_bytes:,} | {' | '.join(cells)} | {paper} |")
    return [
        *lines,
        "",
        f"Means of {REPEATS} iterations with 95% intervals. CPU of the slower client (statistic of half of the rows, "
        "share, mask), the server (sum, noise if it draws it) and a client (unmasking, next centers), and "
        f"{ROUND_TRIP_MS} ms. Bytes: a client's message, 28 of them its pseudonym and tag. In the paper the server "
        "draws the noise.",
        "",
    ]


def iteration(fit: Any, rows: NDArray[np.float64], split: bool, turn: int) -> float:
    """CPU seconds of the critical path."""
    each, state, masks = fit.rounds[0], fit.initial, RoundMasks(bytes(32), b"%d" % turn)
    messages, seconds = [], []
    for name, half in ((b"one", rows[::2]), (b"two", rows[1::2])):
        block, start = ClientBlock(np.ascontiguousarray(half)), time.process_time()
        vector = each.statistic(block, state)
        if split:
            vector = vector + draw_share(bytes([turn]) * 32, name, each.plan, vector, 2)
        messages.append(masks.mask([name], vector[None]))
        seconds.append(time.process_time() - start)
    start = time.process_time()
    total = messages[0].values[0] + messages[1].values[0]
    releases = releases_of(each.plan, total) if split else draw_release(bytes(32), each.plan, total)
    noised = np.concatenate([release.values.ravel() for release in releases])
    plain = noised - masks.total([message.tags[0] for message in messages], each.plan.size)
    each.step(state, releases_of(each.plan, plain))
    return max(seconds) + time.process_time() - start


if __name__ == "__main__":
    main()
