"""What masks cost: 10,000 clients' vectors of k (d + 1) = 1,010 words added up with and without them.

Central and masked take turns in one process; a ratio is the median over the turns. `vectors` measures one round of
aggregation of given vectors, from the vectors to the releases, through Beam: central adds up vectors as they come,
one element each, or 100 to an element, as masked messages come. `aggregator` is the aggregating stage by itself. `whole
job` is `fit` at client level, rows read and all; most of its masked time goes into statistics that are formed client
by client, as clients of their own would. `pairwise` counts one round of the other scheme in NumPy.

    python -m benchmarks.masked --repeats 9 --out benchmarks/results/masked.md
"""

import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from pipelines.kmeans.fit import execute
from pipelines.kmeans.plan.planned_fit import plan_fit
from pipelines.run.options import beam_options
from schemas.kmeans.fit_config import validated
from schemas.masked.message import MaskedMessages
from schemas.privacy.plan import Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from transforms.masked.aggregator import AggregateMasked, SumMessagesFn
from transforms.masked.clients import Masking, SecretFn, UnmaskReleases
from transforms.masked.rounds import all_arrive
from transforms.numerics.masked.neighbors import circle, parameters
from transforms.numerics.masked.pairwise_masks import Neighbor, PairwiseClient, SharedRound, total_mask
from transforms.numerics.masked.shared_masks import RoundMasks, message_bytes
from transforms.privacy.keys import create_key
from transforms.privacy.noise_stage import AddNoise
from transforms.rounds.aggregation import SumStatistics, SumVectorsFn

N_CLIENTS, N_CLUSTERS, N_FEATURES, BATCH = 10_000, 10, 100, 100
SIZE = N_CLUSTERS * (N_FEATURES + 1)
Times = tuple[float, float]


class Nothing:
    """A state without releases."""

    releases = ()


def plan() -> RoundPlan:
    shapes = {"sums": (N_CLUSTERS, N_FEATURES), "counts": (N_CLUSTERS,)}
    law = {"mechanism": Mechanism.DISCRETE_GAUSSIAN, "sensitivity": 1 << 20, "share": 1.0}
    specs = [ReleaseSpec(name=name, shape=shape, **law) for name, shape in shapes.items()]
    return RoundPlan(path="bench/round", releases=tuple(ReleasePlan(spec=s, noise_multiplier=10.0) for s in specs))


def load(index: int, state: object, path: str) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[index * BATCH : (index + 1) * BATCH])


def load_each(index: int, state: object, path: str) -> Iterator[np.ndarray]:
    yield from load(index, state, path)


def keep(releases: tuple, state: object) -> None:
    KEPT.append(releases)


class MaskGivenFn(SecretFn):
    """Masks given vectors, a batch at a time."""

    def __init__(self, masking: Masking, path: str):
        super().__init__(masking)
        self._path = path

    def process(self, index: int, state: Nothing) -> Iterator[MaskedMessages]:
        """One batch of messages."""
        senders = [b"%d" % client for client in range(index * BATCH, (index + 1) * BATCH)]
        yield self._masks(plan(), state).mask(senders, load(index, state, self._path))


def batch_sum(vectors: np.ndarray) -> np.ndarray:
    return vectors.sum(axis=0)


def central(root: beam.Pipeline, path: str, key: str, *, batched: bool) -> None:
    """The steps of `PrivateRound`, vectors for statistics."""
    state = AsSingleton(root | "State" >> beam.Create([Nothing()], reshuffle=False))
    indices = root | beam.Create(range(N_CLIENTS // BATCH))
    vectors = indices | "Load" >> (beam.Map(load, state, path) if batched else beam.FlatMap(load_each, state, path))
    if batched:
        vectors = vectors | beam.Map(batch_sum)
    releases = vectors | SumStatistics(size=SIZE) | AddNoise(plan=plan(), key_uri=key)
    _ = releases | "Server" >> beam.Map(keep, state)


def masked(root: beam.Pipeline, path: str, key: str, masking: Masking) -> None:
    """The steps of `MaskedRound`, vectors for statistics."""
    state = root | "State" >> beam.Create([Nothing()], reshuffle=False)
    indices = root | beam.Create(range(N_CLIENTS // BATCH))
    messages = indices | "Mask" >> beam.ParDo(MaskGivenFn(masking, path), AsSingleton(state))
    releases = messages | beam.Map(all_arrive) | AggregateMasked(plan=plan(), key_uri=key)
    unmasked = releases | UnmaskReleases(plan=plan(), state=state, masking=masking)
    _ = unmasked | "Server" >> beam.Map(keep, AsSingleton(state))


def run_alone(build: Callable[[beam.Pipeline], None]) -> None:
    """Runs a graph with steps of this benchmark's own."""
    with beam.Pipeline(options=beam_options([])) as root:
        build(root)


KEPT: list = []


def timed(work: Callable[[], object]) -> Times:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def turns(repeats: int, *works: Callable[[], object]) -> list[list[Times]]:
    """Times of each work, taken in turn, after one turn to warm up."""
    rounds = [[timed(work) for work in works] for _ in range(repeats + 1)][1:]
    return [list(column) for column in zip(*rounds, strict=True)]


def row(name: str, base: list[Times], ours: list[Times]) -> str:
    cells = [name]
    for which in (0, 1):
        left, right = ([each[which] for each in column] for column in (base, ours))
        ratio = statistics.median(b / a for a, b in zip(left, right, strict=True))
        cells += [f"{statistics.median(left):.3f}", f"{statistics.median(right):.3f}", f"{ratio:.2f}"]
    line = f"| {' | '.join(cells)} |"
    print(line, flush=True)
    return line


def through_beam(folder: Path, repeats: int) -> list[str]:
    vectors = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, (N_CLIENTS, SIZE))
    path, key, secret = (str(folder / name) for name in ("vectors.npy", "key", "secret"))
    np.save(path, vectors)
    create_key(key)
    create_key(secret)
    masking = Masking(secret_uri=secret, run="bench")
    builds = [functools.partial(central, path=path, key=key, batched=batched) for batched in (False, True)]
    builds.append(functools.partial(masked, path=path, key=key, masking=masking))
    works = [functools.partial(run_alone, build) for build in builds]
    one, many, ours = turns(repeats, *works)
    stddev = max(np.abs(np.concatenate([r.values.ravel() for r in kept]) - vectors.sum(axis=0)).max() for kept in KEPT)
    assert stddev < 10 * 10.0 * (1 << 20)
    return [row("vectors, central one by one", one, ours), row("vectors, central by hundreds", many, ours)]


def aggregator_alone(repeats: int) -> list[str]:
    vectors = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, (N_CLIENTS, SIZE))
    masks = RoundMasks(bytes(32), b"bench")
    senders = [b"%d" % client for client in range(N_CLIENTS)]
    messages = [
        masks.mask(senders[start : start + BATCH], vectors[start : start + BATCH])
        for start in range(0, N_CLIENTS, BATCH)
    ]
    plain, ring = SumVectorsFn(SIZE), SumMessagesFn(SIZE)

    def add_plain() -> None:
        functools.reduce(plain.add_input, vectors, plain.create_accumulator())

    def add_masked() -> None:
        ring.extract_output(functools.reduce(ring.add_input, messages, ring.create_accumulator()))

    lines = [row("aggregator alone", *turns(repeats, add_plain, add_masked))]
    total = sum(batch.values.sum(axis=0) for batch in messages)
    tags = [tag for batch in messages for tag in batch.tags]
    np.testing.assert_array_equal(total - masks.total(tags, SIZE), vectors.sum(axis=0))

    def mask_all() -> None:
        for start in range(0, N_CLIENTS, BATCH):
            masks.mask(senders[start : start + BATCH], vectors[start : start + BATCH])

    (masking,), (unmasking,) = turns(repeats, mask_all), turns(repeats, lambda: masks.total(tags, SIZE))
    seconds = [statistics.median(cpu for _, cpu in times) for times in (masking, unmasking)]
    print(seconds)
    return [
        *lines,
        "",
        f"A client masks its message in {seconds[0] / N_CLIENTS * 1e6:.0f} us of CPU; all masks are made again and "
        f"added up in {seconds[1]:.3f} s. A message has {message_bytes(SIZE):,} octets, 8 k (d + 1) = {8 * SIZE:,} of "
        "them its statistic.",
    ]


def whole_round(folder: Path, repeats: int) -> list[str]:
    lake = folder / "lake"
    mixture.write_lake(lake, mixture.draw(0, 10 * N_CLIENTS), n_files=4, group_rows=5_000, client_rows=10)
    config = mixture.config(lake, "client", 1.0)
    jobs = [plan_fit(validated(config | extra)) for extra in ({}, {"trust": "masked"})]

    def run(job) -> None:
        with tempfile.TemporaryDirectory() as out:
            execute(job, beam_options([]), out)

    return [row("whole job, client level", *turns(repeats, *(functools.partial(run, job) for job in jobs)))]


def pairwise_round() -> list[str]:
    """Work of one client and of the collector, for a tenth of the clients with the neighbors that all would need."""
    graph, n = parameters(N_CLIENTS, 0.05, 0.3), N_CLIENTS // 10
    around = circle(n, graph.n_neighbors, bytes(16)).tolist()
    clients = [PairwiseClient(number.to_bytes(32, "big"), number, b"bench") for number in range(n)]
    keys = [client.advertise() for client in clients]
    vectors = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, (n, SIZE))
    hoods = [[Neighbor(other, keys[other]) for other in around[number]] for number in range(n)]
    letters: list[dict[int, bytes]] = []
    messages: list[np.ndarray] = []
    times = [
        timed(lambda: letters.extend(c.share(hoods[c.number], graph.threshold, vectors[c.number]) for c in clients)),
        timed(lambda: messages.extend(c.mask(hoods[c.number], vectors[c.number]) for c in clients)),
    ]
    present = frozenset(range(n)) - frozenset(range(0, n, 10))
    revealed: list = []

    def reveal() -> None:
        for number in sorted(present):
            inbox = {owner: (Neighbor(owner, keys[owner]), letters[owner][number]) for owner in around[number]}
            revealed.extend(clients[number].reveal(inbox, present))

    times.append(timed(reveal))
    found: list[np.ndarray] = []
    tags = {number: clients[number].tag(vectors[number]) for number in present}
    shared = SharedRound(dict(enumerate(keys)), dict(enumerate(around)), graph.threshold, b"bench", tags)
    times.append(timed(lambda: found.append(total_mask(revealed, shared, present, SIZE))))
    kept = sorted(present)
    np.testing.assert_array_equal(np.stack(messages)[kept].sum(axis=0) - found[0], vectors[kept].sum(axis=0))
    share, mask, hand_out, collect = (cpu for _, cpu in times)
    letter = len(next(iter(letters[0].values())))
    return [
        f"Pairwise masks, 5% may collude and 30% drop out of 10,000: {graph.n_neighbors} neighbors, threshold "
        f"{graph.threshold}. Measured on {n:,} clients of which 10% have gone, CPU of one client: share "
        f"{share / n * 1e3:.1f} ms, mask {mask / n * 1e3:.1f} ms, hand out shares "
        f"{hand_out / len(present) * 1e3:.1f} ms; the collector takes {collect:.1f} s. A client sends "
        f"{8 * SIZE:,} octets of message and {graph.n_neighbors * letter:,} of letters.",
    ]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    lines = heading("Masked aggregation: what masks cost")
    lines += [
        f"{N_CLIENTS:,} clients, k = {N_CLUSTERS}, d = {N_FEATURES}; medians of {arguments.repeats} turns.",
        "",
        "| measure | central wall s | masked wall s | ratio | central CPU s | masked CPU s | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        lines += through_beam(Path(folder), arguments.repeats)
        lines += whole_round(Path(folder), max(1, arguments.repeats // 3))
    lines += aggregator_alone(arguments.repeats)
    lines += ["", *pairwise_round()]
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    # Functions of the module that is run would be pickled with its globals.
    from benchmarks import masked as module

    module.main()
