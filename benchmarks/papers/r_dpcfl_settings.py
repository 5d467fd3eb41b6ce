"""R-DPCFL by its settings: the paper's own on MNIST, a convolutional network, and an ablation of what may be chosen.

`paper` has E = 200, b = 32, c = 3 of the paper on images of 14 x 14 with softmax regression, 1,000 rows per client and
one epsilon. `cnn` trains the small convolutional network of `papers.image_models` and needs JAX. `options` varies the
share of rounds with selections (appendix C.6), what they compare models by, and the round E_c after which they start.
`cifar` is the paper's own CIFAR10 with ResNet18, which needs JAX, the images, and weeks of a CPU; give it few `--rows`
and `--rounds`. Runs, clients and columns are those of `papers.dp_clustered_fl`.

    python -m benchmarks.papers.r_dpcfl_settings --data FOLDER --sections paper --out FILE
"""

import argparse
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading, write
from benchmarks.papers.dp_clustered_fl import METHODS, SMALL, SOFTMAX, Outcome, federation_of, mean, run, table
from benchmarks.papers.federated_clients import SHIFTS, Clients, Images, clients, load
from benchmarks.papers.image_models import CnnShape, ResNetShape
from dapple_dp.schemas.choices import SelectionScore
from dapple_dp.schemas.clustered_fl.records import ModelShape, TrainingParams

PAPER = TrainingParams(rounds=200, local_epochs=1, batch_size=32, learning_rate=0.05, clipping_norm=3.0)
"""E, K, b and c of the paper; the rate is the better one of two that were tried, and those of the paper are unknown."""
CIFAR = dataclasses.replace(PAPER, learning_rate=5e-4)
CNN = dataclasses.replace(SMALL, rounds=10)
RESNET = functools.partial(ResNetShape, n_hidden=64)
PAPER_METHODS = ("oracle", "R-DPCFL", "IFCA, identical start", "Local")
CNN_METHODS = ("oracle", "R-DPCFL", "Local")
SHARES = (0.025, 0.1, 0.3, 1.0)
SWITCHES = (2, 10, 20, 40)
OPTION_EPSILONS = (1.0, 4.0)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the images")
    parser.add_argument("--images", default="mnist", help="name of their file, such as fashion_mnist")
    parser.add_argument("--side", type=int, default=14, help="pixels of a side; they divide those of the images")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, required=True)
    parser.add_argument("--rows", type=int, default=1_000, help="rows of a client")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[4.0])
    parser.add_argument("--rounds", type=int, help="E in place of the section's own")
    arguments = parser.parse_args()
    lines = heading("R-DPCFL by its settings")
    images = load(arguments.data / f"{arguments.images}.npz", arguments.side)
    with threadpool_limits(limits=1):
        for name in arguments.sections:
            for section in SECTIONS[name](images, arguments):
                lines += section
                print("\n".join(section), flush=True)
    if arguments.out:
        write(lines, arguments.out)


def paper_section(images: Images, arguments: argparse.Namespace) -> Iterator[list[str]]:
    """The paper's settings, all methods, both shifts."""
    training = _rounds(PAPER, arguments)
    for shift in SHIFTS:
        yield _accuracies(images, arguments, shift, training, PAPER_METHODS, "softmax", SOFTMAX)


def cnn_section(images: Images, arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Few rounds of the convolutional network."""
    yield _accuracies(images, arguments, "rotation", _rounds(CNN, arguments), CNN_METHODS, "cnn", CnnShape)


def cifar_section(images: Images, arguments: argparse.Namespace) -> Iterator[list[str]]:
    """CIFAR10 and ResNet18, both shifts."""
    for shift in SHIFTS:
        yield _accuracies(images, arguments, shift, _rounds(CIFAR, arguments), PAPER_METHODS, "resnet", RESNET)


def _rounds(training: TrainingParams, arguments: argparse.Namespace) -> TrainingParams:
    """With the number of rounds that was asked for, and batches no larger than clients."""
    batch = min(training.batch_size, arguments.rows)
    return dataclasses.replace(training, rounds=arguments.rounds or training.rounds, batch_size=batch)


def _accuracies(
    images: Images,
    arguments: argparse.Namespace,
    shift: str,
    training: TrainingParams,
    methods: Sequence[str],
    model: str,
    shape: Callable[..., ModelShape],
) -> list[str]:
    """A table: a method and an epsilon each."""
    cells = [clients(images, shift, arguments.rows, seed) for seed in range(arguments.seeds)]
    rows = []
    for name in methods:
        for epsilon in arguments.epsilons:
            found = [
                run(federation_of(METHODS[name], training, cell, epsilon, seed, shape=shape), cell, seed)
                for seed, cell in enumerate(cells)
            ]
            seconds = f"{sum(each.seconds for each in found) / len(found):.0f}"
            minority, accuracy = mean(o.minority for o in found), mean(o.accuracy for o in found)
            rows.append([name, f"{epsilon:g}", accuracy, minority, *_clusters(found), seconds])
    title = f"{model}, {shift}, {_size(arguments, training)}"
    lines = [f"## {title}, c = {training.clipping_norm:g}", ""]
    lines += [f"Learning rate {training.learning_rate:g}, delta 1e-4, {len(cells)} seeds; accuracy in percent."]
    return lines + table(["", "epsilon", "accuracy", "minority", "true clusters", "MSS", "CPU s per run"], rows)


def _size(arguments: argparse.Namespace, training: TrainingParams) -> str:
    """Number of images, clients, rounds and batches."""
    side = f"{arguments.side} x {arguments.side}"
    return f"{side}, N = {arguments.rows:,}, E = {training.rounds}, b = {training.batch_size}"


def _clusters(found: Sequence[Outcome]) -> list[str]:
    """Runs with the true clusters at the end, and MSS."""
    separations = [o.separation for o in found if not math.isnan(o.separation)]
    return [f"{sum(o.last for o in found)} of {len(found)}", mean(separations) if separations else "-"]


def options_section(images: Images, arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Appendix C.6, E_c, and selections by loss."""
    cells = [clients(images, "rotation", arguments.rows, seed) for seed in range(arguments.seeds)]
    training = _rounds(SMALL, arguments)
    head = ["", *(f"epsilon {epsilon:g}: accuracy | true" for epsilon in OPTION_EPSILONS)]
    head = [word for each in head for word in each.split(" | ")]
    size = f"{_size(arguments, training)}, {len(cells)} seeds"
    rows = []
    for name in ("R-DPCFL", "IFCA, identical start"):
        for score in SelectionScore:
            for share in SHARES:
                rounds = METHODS[name].selections(training.rounds, share)
                options = {"selection_rounds": rounds, "select_by": score}
                rows.append([f"{name}, {score}, {share:.1%} of rounds", *_both(cells, name, training, options)])
    yield [f"## Selections: share of rounds, and by what (rotation, {size})", *table(head, rows)]
    switches = sorted({min(switch, training.rounds) for switch in SWITCHES})
    rows = [[f"E_c = {at}", *_both(cells, "R-DPCFL", training, {"switch_round": at})] for at in switches]
    rows.append(["E_c of the paper", *_both(cells, "R-DPCFL", training, {})])
    yield [f"## Round after which clients select ({size})", *table(head, rows)]


def _both(cells: Sequence[Clients], name: str, training: TrainingParams, options: dict[str, Any]) -> list[str]:
    """Accuracy and true clusters at both epsilons."""
    found = []
    for epsilon in OPTION_EPSILONS:
        outcomes = [
            run(federation_of(METHODS[name], training, cell, epsilon, seed, **options), cell, seed)
            for seed, cell in enumerate(cells)
        ]
        found += [mean(each.accuracy for each in outcomes), _clusters(outcomes)[0]]
    return found


SECTIONS: dict[str, Callable[[Images, argparse.Namespace], Iterator[list[str]]]] = {
    "paper": paper_section,
    "cnn": cnn_section,
    "options": options_section,
    "cifar": cifar_section,
}

if __name__ == "__main__":
    main()
