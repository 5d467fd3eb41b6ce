"""Whom a federation harms: accuracy of R-DPCFL's least client, and how many clients end below a model of their own.

Cells are data sets of few rows whose clients are of several groups or all alike. In every run each client's accuracy
on test rows of its group is compared with that of its model under algorithm `local`, from the same rows at the same
epsilon. Everything runs in this process, as plain rounds. The folder of the data holds mnist.npz.

    python -m benchmarks.papers.least_clients --data FOLDER --out FILE
    python -m benchmarks.papers.least_clients --data FOLDER --cells "digits, labels" --runs 2
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from benchmarks.machine import heading, write
from benchmarks.papers.dp_clustered_fl import METHODS, PULLS, Method, federation_of, table
from benchmarks.papers.federated_clients import Clients, Images, load, shifted
from schemas.clustered_fl.records import ClientRows, FederatedState, Federation, TrainingParams
from tests.scenes.federation import run_rounds
from transforms.numerics.clustered_fl.bounded_rows import bounded_rows
from transforms.numerics.clustered_fl.dp_sgd import model_of
from transforms.numerics.privacy.keystream import KeyStream, encode_label

DEFAULTS, LETTER, LOCAL, GLOBAL = "R-DPCFL, the job's defaults", "R-DPCFL", "Local", "Global"
SHOWN = (DEFAULTS, LETTER, LOCAL, GLOBAL, "IFCA, random start", f"MR-MTL, pull {PULLS[1]:g}", "oracle")
HARM = 3.0
"""Points below the own model that count as harm."""


class Place(NamedTuple):
    """Clients of one draw.

    Attributes:
      rows: of each client.
      truth: group of each client.
      tests: rows of each group.
      training: rounds and batches.
    """

    rows: tuple[ClientRows, ...]
    truth: NDArray[np.int64]
    tests: tuple[ClientRows, ...]
    training: TrainingParams


def _training(batch: int) -> TrainingParams:
    return TrainingParams(rounds=40, local_epochs=1, batch_size=batch, learning_rate=0.4, clipping_norm=1.0)


def _images(images: Images, shift: str, sizes: tuple[int, ...], n_rows: int, batch: int, seed: int) -> Place:
    """Disjoint rows of images for all clients, changed by group."""
    random = np.random.default_rng([seed, n_rows])
    truth = np.repeat(np.arange(len(sizes)), sizes)
    drawn = random.permutation(len(images.train))[: len(truth) * n_rows].reshape(len(truth), n_rows)
    rows = [
        shifted(images.train[each], images.train_labels[each], shift, group)
        for each, group in zip(drawn, truth, strict=True)
    ]
    chosen = random.permutation(len(images.test))[:2000]
    tests = [shifted(images.test[chosen], images.test_labels[chosen], shift, group) for group in range(len(sizes))]
    return Place(tuple(rows), truth, tuple(tests), _training(batch))


def _digits(seed: int) -> Images:
    """The 1,797 images of scikit-learn, of which 400 are for tests."""
    points, labels = load_digits(return_X_y=True)
    images = (points / 16.0).reshape(-1, 8, 8).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(labels))
    test, train = order[:400], order[400:]
    return Images(images[train], labels[train].astype(np.int64), images[test], labels[test].astype(np.int64))


def _blobs(sizes: tuple[int, ...], seed: int) -> Place:
    """Five classes around corners of a cube; groups number the classes otherwise."""
    random = np.random.default_rng([seed, 5])
    truth = np.repeat(np.arange(len(sizes)), sizes)
    means = random.normal(size=(5, 10))

    def drawn(n_rows: int, group: int) -> ClientRows:
        labels = random.integers(0, 5, n_rows)
        points = means[labels] + 0.7 * random.normal(size=(n_rows, 10))
        return bounded_rows(points.astype(np.float32), (labels + group) % 5)

    rows = tuple(drawn(200, group) for group in truth)
    return Place(rows, truth, tuple(drawn(2000, group) for group in range(len(sizes))), _training(20))


def cells(folder: Path) -> dict[str, Callable[[int], Place]]:
    """Places by name; each takes a seed."""
    mnist = load(folder / "mnist.npz", 14)
    several, alone = (3, 3, 3, 3), (12,)
    return {
        "digits, labels": lambda seed: _images(_digits(seed), "label flip", several, 110, 20, seed),
        "digits, rotation": lambda seed: _images(_digits(seed), "rotation", several, 110, 20, seed),
        "digits, all alike": lambda seed: _images(_digits(seed), "rotation", alone, 110, 20, seed),
        "mnist, labels": lambda seed: _images(mnist, "label flip", (3, 6, 6, 6), 300, 50, seed),
        "mnist, rotation": lambda seed: _images(mnist, "rotation", (3, 6, 6, 6), 300, 50, seed),
        "mnist, all alike": lambda seed: _images(mnist, "rotation", alone, 300, 50, seed),
        "blobs, labels": lambda seed: _blobs(several, seed),
        "blobs, all alike": lambda seed: _blobs(alone, seed),
    }


def accuracies(method: Method, place: Place, epsilon: float, seed: int, key: int = 0) -> NDArray[np.float64]:
    """Percent of test rows of each client's group that its final model has right; four clusters are asked for.

    Args:
      method: what is trained.
      place: the clients.
      epsilon: of each.
      seed: public.
      key: of the noise.
    """
    n_classes = 1 + max(int(rows.labels.max()) for rows in place.rows)
    given = Clients(place.rows, place.tests)
    terms = federation_of(method, place.training, given, epsilon, seed, truth=place.truth, n_classes=n_classes)
    stream = KeyStream(seed.to_bytes(32, "little"), encode_label("least_clients", key))
    return judged(terms, run_rounds(terms, place.rows, stream), place)


def judged(terms: Federation, final: FederatedState, place: Place) -> NDArray[np.float64]:
    """Accuracy of each client's final model, in percent."""
    model, found = model_of(terms.shape), []
    for client, group in enumerate(place.truth):
        rows = place.tests[group]
        predicted = model.predictions(final.models[final.assignments[client]], rows.features)
        found.append(100.0 * float((predicted == rows.labels).mean()))
    return np.array(found)


def section(name: str, place: Callable[[int], Place], epsilon: float, runs: int) -> list[str]:
    """A table of all methods on one cell."""
    places = [place(seed) for seed in range(runs)]
    found = {
        each: np.array([accuracies(METHODS[each], places[seed], epsilon, seed) for seed in range(runs)])
        for each in SHOWN
    }
    found["Local, another key"] = np.array(
        [accuracies(METHODS[LOCAL], places[seed], epsilon, seed, key=1) for seed in range(runs)]
    )
    rows = []
    for each, values in found.items():
        gaps = values - found[LOCAL]
        lost = "" if each == LOCAL else f"{int((gaps < 0.0).sum())} of {gaps.size}"
        harmed = "" if each == LOCAL else f"{int((gaps < -HARM).sum())}, at most {max(0.0, -float(gaps.min())):.1f}"
        rows.append(
            (each, f"{values.mean():.1f} ± {values.mean(axis=1).std(ddof=1):.1f}", f"{values.min():.1f}", lost, harmed)
        )
    n_clients, n_rows = len(places[0].rows), len(places[0].rows[0].labels)
    lines = [f"## {name}, epsilon {epsilon:g}: {n_clients} clients of {n_rows} rows"]
    head = ("", "mean", "least client", "below Local", f"more than {HARM:g} points below")
    return lines + table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds mnist.npz")
    parser.add_argument("--cells", nargs="*", help="names; default: all")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--out", type=Path, help="Markdown file for the results")
    arguments = parser.parse_args()
    lines = heading("R-DPCFL's least client")
    lines += [
        f"{arguments.runs} runs; mean ± stddev over runs of the clients' mean accuracy, in percent. The least client"
    ]
    lines += [
        "is that of all runs. How far Local under another key falls below Local is the noise of a single comparison."
    ]
    with threadpool_limits(limits=1):
        for name, place in _asked(arguments):
            for epsilon in (2.0, 4.0) if name.startswith("digits") else (1.0, 2.0):
                lines += ["", *section(name, place, epsilon, arguments.runs)]
                print("\n".join(lines[-14:]), flush=True)
                if arguments.out:
                    write(lines, arguments.out)


def _asked(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[int], Place]]]:
    known = cells(arguments.data)
    yield from ((name, known[name]) for name in arguments.cells or known)


if __name__ == "__main__":
    main()
