"""Turns files as their publishers offer them into those that `benchmarks.data` and the figures read.

Nothing here reads the network. Images are those of their publishers, by digest, or are refused. Debian's package
`dataset-fashion-mnist` holds what its publisher offers, repacked: so the digests are of what is in the files.

    python -m benchmarks.data_files birch2 birch2.txt.gz --to FOLDER
    python -m benchmarks.data_files fashion_mnist /usr/share/datasets/fashion-mnist --to FOLDER
    python -m benchmarks.data_files cifar10 cifar-10-binary.tar.gz --to FOLDER
"""

import argparse
import gzip
import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]
BIRCH2_ROWS = 25_000
UNKNOWN = 1.0
"""What stands for the 16 unknown values of Breast: the most frequent value of that column."""
FASHION_SHA256 = {
    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""Of the unpacked files, as Debian's package has them (0.0~git20200523.55506a9-1)."""
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
"""Of cifar-10-binary.tar.gz, as its page has it."""
CIFAR10_PARTS = (*(f"data_batch_{index}.bin" for index in range(1, 6)), "test_batch.bin")
CIFAR10_IMAGE = (3, 32, 32)
CIFAR10_BATCH = 10_000


def breast(path: Path) -> Arrays:
    """Nine features of UCI's breast-cancer-wisconsin.data, without the identifier and the class."""
    words = [line.split(",")[1:10] for line in _lines(path) if line[:1].isdigit()]
    return {"X": np.array([[UNKNOWN if word == "?" else float(word) for word in row] for row in words])}


def yeast(path: Path) -> Arrays:
    """Eight features of UCI's yeast.data, or of a file with nothing but them."""
    words = [line.split() for line in _lines(path)]
    return {"X": np.array([row[1:9] if len(row) == 10 else row for row in words], dtype=np.float64)}


def birch2(path: Path) -> Arrays:
    """25,000 random rows of the 100,000; which ones the paper took is not known."""
    rows = np.array([line.split() for line in _lines(path)], dtype=np.float64)
    return {"X": rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:BIRCH2_ROWS])]}


def mnist_784(path: Path) -> Arrays:
    """The 10,000 test images of an npz of MNIST; which 10,000 the paper took is not known."""
    with np.load(path, allow_pickle=False) as file:
        return {"X": file["x_test"].reshape(-1, 784).astype(np.float64)}


def fashion_mnist(folder: Path) -> Arrays:
    """Images (n, 28, 28) and labels of Fashion-MNIST's four files."""
    unpacked = []
    for name, digest in FASHION_SHA256.items():
        raw = gzip.decompress((folder / name).read_bytes())
        _check(name, "SHA-256 of what is in it", hashlib.sha256(raw).hexdigest(), digest)
        unpacked.append(_idx(raw))
    train, train_labels, test, test_labels = unpacked
    return {"x_train": train, "y_train": train_labels, "x_test": test, "y_test": test_labels}


def cifar10(path: Path) -> Arrays:
    """Images (n, 3, 32, 32) and labels of the binary version of CIFAR-10."""
    _known(path, CIFAR10_MD5)
    with tarfile.open(path) as archive:
        found = [_record(archive, f"cifar-10-batches-bin/{name}") for name in CIFAR10_PARTS]
    images, labels = np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])
    cut = -CIFAR10_BATCH
    return {"x_train": images[:cut], "y_train": labels[:cut], "x_test": images[cut:], "y_test": labels[cut:]}


MAKERS: dict[str, Callable[[Path], Arrays]] = {
    each.__name__: each for each in (breast, yeast, birch2, mnist_784, fashion_mnist, cifar10)
}


def _lines(path: Path) -> list[str]:
    """Lines with words, of a file that may be packed."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("ascii")
    return [line for line in text.splitlines() if line.strip()]


def _known(path: Path, md5: str) -> bytes:
    """Content of a file of this digest; raises ValueError for another one."""
    raw = path.read_bytes()
    _check(path.name, "MD5", hashlib.md5(raw, usedforsecurity=False).hexdigest(), md5)
    return raw


def _check(name: str, kind: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise ValueError(f"{name} must have the {kind} {wanted}, got {found}; it is not the file of its publisher.")


def _idx(raw: bytes) -> NDArray[np.uint8]:
    """An array of bytes in the format of MNIST: two zeros, type 8, the number of axes, their lengths, the values."""
    if raw[:3] != b"\0\0\x08":
        raise ValueError("an idx file of bytes must begin with 0, 0, 8; it is another kind of file.")
    axes = np.frombuffer(raw, ">u4", raw[3], 4).astype(np.int64)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(axes)


def _record(archive: tarfile.TarFile, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and labels of a batch: a byte of label before those of an image."""
    member = archive.extractfile(name)
    if member is None:
        raise ValueError(f"{name} must be a file of the archive; it is another archive.")
    rows = np.frombuffer(member.read(), np.uint8).reshape(-1, 1 + int(np.prod(CIFAR10_IMAGE)))
    return rows[:, 1:].reshape(-1, *CIFAR10_IMAGE), rows[:, 0]


def main() -> None:
    """Writes NAME.npz."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MAKERS)
    parser.add_argument("source", type=Path, help="the publisher's file, or a folder of its files")
    parser.add_argument("--to", type=Path, required=True, help="folder for NAME.npz")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    arrays = MAKERS[options.name](options.source)
    np.savez_compressed(options.to / f"{options.name}.npz", allow_pickle=False, **arrays)
    print({name: each.shape for name, each in arrays.items()})


if __name__ == "__main__":
    main()
