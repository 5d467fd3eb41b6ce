"""Every figure and table of the papers that a command here draws: the command, its data, and a toy size."""

import contextlib
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from benchmarks import machine
from benchmarks.papers.one_round import Cell

RESULTS = Path("benchmarks/results")
DATA, OUT, WORK = "DATA", "OUT", "WORK"
"""Words of a command that stand for folders."""
FEDDP, REVIEWS, ONE_ROUND = "FedDP-KMeans", "FedDP-KMeans, reviews", "One round"
FASTLLOYD, R_DPCFL = "FastLloyd", "R-DPCFL"
_TOY_SWEEP = {
    "EPSILONS": [1.0],
    "FEW_EPSILONS": [1.0],
    "RECORD_ROWS": 1_000,
    "CLIENTS": dict.fromkeys(("client-1000", "client-2000", "client-5000"), 40),
    "LARGEST_K": 3,
    "STEPS": [0],
    "BASELINE_STEPS": [1],
    "FEDDP": {"FedDP-KMeans (tuned)": {"algorithm": "feddp_kmeans", "feddp_kmeans": {"restarts": 20}}},
    "BASELINES": {"ServerKMeans++": "server_kmeanspp"},
    "PRINTED": {},
    "COMPARED": {"FedDP-KMeans (tuned)": ("ServerKMeans++",)},
    "POOLED": {"Optimal": {"algorithm": "optimal"}},
}


class Figure(NamedTuple):
    """A command.

    Attributes:
      paper: whose figures it draws.
      shows: which ones, by their numbers in the paper.
      module: of `benchmarks`.
      words: its arguments; `DATA`, `OUT` and `WORK` stand for folders.
      toy: arguments in their place at toy size.
      constants: of the module, lower at toy size.
      result: the table below `RESULTS`, or None if none was committed.
      lowered: the module of `benchmarks` that holds the constants, if it is another one.
      needs: library that the command needs beside what Dapple requires; empty for none.
    """

    paper: str
    shows: str
    module: str
    words: str
    toy: str
    constants: Mapping[str, Any] = {}
    result: str | None = None
    lowered: str | None = None
    needs: str = ""

    @property
    def command(self) -> str:
        """The command as one types it."""
        return f"python -m benchmarks.{self.module} {self.words}".rstrip()

    @property
    def needs_data(self) -> bool:
        """True if files have to be brought, at full size."""
        return DATA in self.words.split()


def _sweep(paper: str, shows: str, name: str, *, drawn: bool = True, data: bool = False) -> Figure:
    """A figure of `papers.feddp_kmeans`."""
    words = f"--figures {name} --work WORK --out OUT/feddp_kmeans" + " --data DATA" * data
    toy = f"--figures {name} --work WORK --out OUT/feddp_kmeans --seeds 1"
    result = f"feddp_kmeans/{name}.md" if drawn else None
    return Figure(paper, shows, "papers.feddp_kmeans", words, toy, _TOY_SWEEP, result)


def _answer(shows: str, name: str) -> Figure:
    """A figure of `papers.feddp_scores`."""
    words = f"--figures {name} --seeds 2 --out OUT/feddp_kmeans"
    toy = {"LEVELS": {"record": (600, None), "client": (600, 50)}, "EPSILONS": (1.0,), "LARGE_EPSILONS": (1.0,)}
    toy |= {"N_MISSING": (1,), "MISSING_STEPS": (0, 1)}
    result = f"feddp_kmeans/{name}.md"
    return Figure(REVIEWS, shows, "papers.feddp_scores", words, words.replace("seeds 2", "seeds 1"), toy, result)


def _answers(shows: str, name: str) -> Figure:
    """A table of `papers.feddp_answers`."""
    words = f"--sections {name} --seeds {3 if name == 'letter' else 2} --out OUT/feddp_kmeans"
    toy = {"LEVELS": {"record": (600, None), "client": (600, 50)}, "EPSILONS": (1.0,), "MISSING_EPSILONS": (1.0,)}
    result = f"feddp_kmeans/answer-{name}.md"
    return Figure(FEDDP, shows, "papers.feddp_answers", words, words, toy, result)


def _real(shows: str, names: str, toy: str) -> Figure:
    """Figures of `papers.feddp_real`, whose data nobody here has held."""
    words = f"--figures {names} --data DATA --work WORK --out OUT/feddp_kmeans"
    few = f"--figures {toy} --synthetic --work WORK --out OUT/feddp_kmeans --seeds 1"
    return Figure(FEDDP, shows, "papers.feddp_real", words, few, _TOY_SWEEP, lowered="papers.feddp_kmeans")


def _digits(
    shows: str, shift: str, size: str, seeds: int, result: str, images: str = "", *, drawn: bool = True
) -> Figure:
    """A figure of `papers.dp_clustered_fl`."""
    options = f"--shift {shift.replace(' ', '_')} --seeds {seeds} --size {size}{images}"
    toy = f"--data tests/data --images mnist_14 --shift {shift.replace(' ', '_')} --seeds 1 --size toy"
    out = f" --out OUT/{result}"
    found = result if drawn else None
    return Figure(R_DPCFL, shows, "papers.dp_clustered_fl", f"--data DATA {options}{out}", toy + out, {}, found)


def _settings(shows: str, section: str, options: str = "", images: str = "") -> Figure:
    """A figure of `papers.r_dpcfl_settings`."""
    result = f"r_dpcfl_{images or section}.md"
    out = f" --sections {section} --out OUT/{result}"
    toy = "--data tests/data --images mnist_14 --rows 40 --rounds 2"
    constants = {"SHARES": (0.5,), "SWITCHES": (2,), "OPTION_EPSILONS": (4.0,)}
    module = "papers.r_dpcfl_settings"
    needs = "jax" if section == "cnn" else ""
    return Figure(R_DPCFL, shows, module, f"--data DATA{options}{out}", toy + out, constants, result, needs=needs)


FIGURES: dict[str, Figure] = {
    "feddp-record": _sweep(FEDDP, "Figure 1, left", "record"),
    "feddp-client-2000": _sweep(FEDDP, "Figure 2, left", "client-2000"),
    "feddp-client-1000": _sweep(FEDDP, "Figure 5", "client-1000"),
    "feddp-client-5000": _sweep(FEDDP, "Figure 6", "client-5000"),
    "feddp-census-private": _sweep(FEDDP, "Figure 3, on UCI Adult", "census-private", data=True),
    "feddp-census-self-employed": _sweep(FEDDP, "Figure 4, on UCI Adult", "census-self-employed", data=True),
    "feddp-acs": _real("Figures 1 right, 3 and 4", "acs-federal acs-not-for-profit acs-self-employed", "acs-federal"),
    "feddp-questions": _real(
        "Figures 2 right, 7, 8 and 9",
        "questions-github-pdf questions-facebook-hibernate questions-plotting-cookies questions-machine-learning-math",
        "questions-github-pdf",
    ),
    "feddp-shares": Figure(
        FEDDP,
        "Tables 2 to 5",
        "papers.feddp_shares",
        "--out OUT/feddp_kmeans",
        "--sets record --out OUT/feddp_kmeans",
        {"MIXTURES": {"record": (1_000, None)}, "N_SHARES": 2, "EPSILONS": (1.0,)},
        "feddp_kmeans/shares.md",
    ),
    "feddp-theorems": Figure(
        FEDDP,
        "Theorems 2 and 14, Corollary 15, Algorithms 3 and 5",
        "papers.feddp_theorems",
        "--out OUT",
        "--rows 500 --seeds 1 --out OUT",
        result="feddp_theorems.md",
    ),
    "feddp-open": Figure(
        FEDDP,
        "what the paper and its reviews leave open",
        "papers.feddp_open",
        "--out OUT/feddp_open.md",
        "--seeds 1 --out OUT/feddp_open.md",
        {"LEVELS": {"record": (600, None), "client": (600, 50)}, "STEPS": (0, 1), "FAR_ROWS": 600, "EPSILONS": (5.0,)},
        "feddp_open.md",
    ),
    "feddp-contraction": Figure(
        FEDDP,
        "Theorems 2 and 14: the factor 2^-T",
        "papers.feddp_contraction",
        "--out OUT/feddp_contraction.md",
        "--rows 500 --seeds 1 --out OUT/feddp_contraction.md",
        {"SEPARATIONS": (6.0,), "ROUNDS": 2, "EPSILONS": (2.0,)},
        "feddp_contraction.md",
    ),
    "feddp-missing": _answer("Figures 1 to 5: clusters missing from the server data", "missing"),
    "feddp-scores": _answer("Figures 6 to 9: scores beside the cost", "scores"),
    "feddp-letter": _answers("Figures 1 and 2 left at T = 0: the letter beside what is added to it", "letter"),
    "feddp-missing-rivals": _answers("Figures 1 to 5 beside methods that need no server data", "missing"),
    "feddp-elbow": _sweep(REVIEWS, "Figure 10: elbow", "elbow"),
    "feddp-code": Figure(
        FEDDP,
        "beside the authors' code",
        "feddp_utility",
        "--out OUT/feddp_utility.md",
        "--seeds 1 --epsilons 1.0 --processes 1 --settings record --out OUT/feddp_utility.md",
        result="feddp_utility.md",
    ),
    "one-round": Figure(
        ONE_ROUND,
        "Figures 1 and 2",
        "papers.one_round",
        "--seeds 2 --runs WORK/one_round.jsonl --out OUT/one_round.md",
        "--runs WORK/one_round.jsonl --seeds 1 --largest 10000 --figures shuffle --methods shuffle --speed "
        "--out OUT/one_round.md",
        result="one_round.md",
    ),
    "one-round-law": Figure(
        ONE_ROUND,
        "Figure 1 by its law",
        "papers.published_protocol",
        "--draws 200 --out OUT/published_protocol.md",
        "--draws 1 --out OUT/published_protocol.md",
        result="published_protocol.md",
    ),
    "one-round-draws": Figure(
        ONE_ROUND,
        "Figures 1 and 2 with ten draws by their law, Lemma 25",
        "papers.one_round_draws",
        "--out OUT",
        "--draws 1 --out OUT",
        {"FIGURES": {"n": [Cell("n", "paper", 100_000, 4.0)]}},
        "one_round_draws.md",
    ),
    "net-trees": Figure(
        ONE_ROUND,
        "Lemmas 10 to 19, Theorems 1, 20 to 22: nets beside hyperplanes",
        "papers.net_trees",
        "--out OUT",
        "--draws 1 --out OUT",
        {
            "ROWS": 300,
            "FEATURES": (2,),
            "CORESET_FEATURES": (1,),
            "CLIENTS": (10_000, 10**5, 10**6),
            "DIMENSIONS": (2,),
        },
        "net_trees.md",
    ),
    "shuffled-counts": Figure(
        ONE_ROUND,
        "Theorems 32 and 34: shuffled frequencies",
        "papers.shuffled_counts",
        "--seeds 1 --out OUT/shuffled_counts.md",
        "--seeds 1 --out OUT/shuffled_counts.md",
        {"VALUES": (64,), "CLIENTS": (500,), "HISTOGRAMS": (1,)},
        "shuffled_counts.md",
    ),
    "shuffle-trees": Figure(
        ONE_ROUND,
        "Theorem 2: shuffled sums over all levels of a net tree",
        "papers.shuffle_trees",
        "--draws 5 --out OUT/shuffle_trees.md",
        "--draws 1 --out OUT/shuffle_trees.md",
        {"FEATURES": (2,), "CLIENTS": (10_000,), "EPSILONS": (1.0,), "HIGH": (2,), "MIDDLE": 10_000},
        "shuffle_trees.md",
    ),
    "naive": Figure(
        ONE_ROUND,
        "footnote 9, and the answer to the reviews of FedDP-KMeans",
        "papers.naive",
        "--rows 1000000 --out OUT/naive.md",
        "--rows 500 --out OUT/naive.md",
        {"EPSILONS": (1.0,)},
        "naive.md",
    ),
    "naive-projected": Figure(
        REVIEWS,
        "the naive baseline of the answer",
        "papers.naive",
        "--table projected --seeds 3 --out OUT/naive_projected.md",
        "--table projected --out OUT/naive_projected.md",
        {"MIXTURE_ROWS": 600, "MIXTURE_EPSILONS": (2.0,)},
        "naive_projected.md",
    ),
    "fastlloyd": Figure(
        FASTLLOYD,
        "Figure 2, beside the authors' code and with methods of our own",
        "papers.fastlloyd",
        "--data DATA --out OUT/fastlloyd.md",
        "--datasets iris --seeds 1 --out OUT/fastlloyd.md",
        {"SPEED": ((100, 2, 2),)},
        result="fastlloyd.md",
    ),
    "fastlloyd-all": Figure(
        FASTLLOYD,
        "Figures 2 and 6 to 8, all ten data sets",
        "papers.fastlloyd_real",
        "--data DATA --work WORK --out OUT",
        "--datasets wine --seeds 2 --work WORK --out OUT",
        result="fastlloyd_real.md",
    ),
    "fastlloyd-generated": Figure(
        FASTLLOYD,
        "Figure 4 on sets of the paper's generator, by random_clusters.R",
        "papers.fastlloyd_synthetic",
        "--figures 4 --largest 16 --generated DATA --seeds 20 --out OUT/fastlloyd_generated.md",
        "--figures 4 --seeds 1 --rows 300 --largest 2 --out OUT/fastlloyd_generated.md",
        result="fastlloyd_generated.md",
    ),
    "fastlloyd-synthetic": Figure(
        FASTLLOYD,
        "Figures 3 and 4",
        "papers.fastlloyd_synthetic",
        "--seeds 3 --out OUT/fastlloyd_synthetic.md",
        "--seeds 1 --rows 300 --largest 2 --out OUT/fastlloyd_synthetic.md",
        result="fastlloyd_synthetic.md",
    ),
    "fastlloyd-ablation": Figure(
        FASTLLOYD,
        "Figure 5",
        "papers.fastlloyd_ablation",
        "--seeds 5 --out OUT/fastlloyd_ablation.md",
        "--seeds 1 --sides 2 --factors 0.8 --out OUT/fastlloyd_ablation.md",
        {"SEPARATIONS": (0.5,)},
        "fastlloyd_ablation.md",
    ),
    "fastlloyd-messages": Figure(
        FASTLLOYD,
        "Table 3",
        "papers.fastlloyd_messages",
        "--out OUT/fastlloyd_messages.md",
        "--largest 400 --repeats 2 --out OUT/fastlloyd_messages.md",
        result="fastlloyd_messages.md",
    ),
    "r-dpcfl-noise": Figure(
        R_DPCFL,
        "Figures 3 and 4; Definition 3.1",
        "papers.update_noise",
        "--out OUT/update_noise.md",
        "--rounds 2 --batches 3300 6600 --epsilons --out OUT/update_noise.md",
        result="update_noise.md",
    ),
    "r-dpcfl-first-updates": Figure(
        R_DPCFL,
        "Figures 1, 5 and 9 right, Lemma 4.2",
        "papers.first_updates",
        "--data DATA --out OUT/first_updates.md",
        "--data tests/data --images mnist_14 --rows 50 --seeds 1 --epsilons 4 --out OUT/first_updates.md",
        {"BATCHES": (25,)},
        "first_updates.md",
    ),
    "r-dpcfl-theorem": Figure(
        R_DPCFL,
        "Theorem 4.3",
        "papers.mixture_rate",
        "--out OUT/r_dpcfl_theorem.md",
        "--points 500 --seeds 1 --out OUT/r_dpcfl_theorem.md",
        result="r_dpcfl_theorem.md",
    ),
    "r-dpcfl-rotation": _digits("Figures 6 to 8, 9 left", "rotation", "small", 4, "dp_clustered_fl_rotation.md"),
    "r-dpcfl-label-flip": _digits("Figures 6 to 8, 9 left", "label flip", "small", 4, "dp_clustered_fl_label_flip.md"),
    "r-dpcfl-rotation-paper": _digits("Figure 6, 28 x 28", "rotation", "paper", 1, "dp_clustered_fl_paper.md"),
    "r-dpcfl-label-flip-paper": _digits(
        "Figure 6, 28 x 28", "label flip", "paper", 1, "dp_clustered_fl_paper_label_flip.md", drawn=False
    ),
    "r-dpcfl-rotation-replaced": _digits(
        "Figure 6, 28 x 28, by Definition 3.1", "rotation", "replaced", 1, "dp_clustered_fl_replaced.md", drawn=False
    ),
    "r-dpcfl-settings": _settings("Figure 6 with E = 200, b = 32, c = 3", "paper"),
    "r-dpcfl-cifar-softmax": _settings(
        "Figure 6 on CIFAR10, softmax", "paper", " --images cifar10 --side 16 --epsilons 4 10", "cifar10"
    ),
    "r-dpcfl-cnn": _settings("Figure 6 with a convolutional network", "cnn"),
    "r-dpcfl-options": _settings("appendix C.6: selections; E_c", "options", " --seeds 2"),
    "r-dpcfl-cifar": Figure(
        R_DPCFL,
        "Figures 6 to 9, CIFAR10 and ResNet18",
        "papers.r_dpcfl_settings",
        "--data DATA --images cifar10 --side 32 --rows 6600 --seeds 4 --epsilons 2 3 4 5 10 --sections cifar "
        "--out OUT/r_dpcfl_cifar.md",
        "--data DATA --images cifar10 --side 32 --rows 8 --rounds 2 --sections cifar --out OUT/r_dpcfl_cifar.md",
        needs="jax",
    ),
    "r-dpcfl-fashion": _digits(
        "Figure 6, FMNIST", "rotation", "paper", 1, "dp_clustered_fl_fashion.md", " --images fashion_mnist --few"
    ),
    "r-dpcfl-fashion-label-flip": _digits(
        "Figure 6, FMNIST",
        "label flip",
        "paper",
        1,
        "dp_clustered_fl_fashion_flip.md",
        " --images fashion_mnist --few",
        drawn=False,
    ),
}


def draw(name: str, out: Path, work: Path, data: Path | None = None, *, toy: bool = False) -> None:
    """Runs the command of a figure in this process.

    Args:
      name: of `FIGURES`.
      out: folder for tables.
      work: folder for what a run may throw away.
      data: folder of the files that `benchmarks.data` lists.
      toy: whether to draw next to nothing, from data that are made here: only to see that the command runs.

    Raises:
      LookupError: if the figure needs data and no folder is given, or a library that is not installed.
    """
    figure = FIGURES[name]
    if figure.needs and importlib.util.find_spec(figure.needs) is None:
        raise LookupError(f"{name} needs {figure.needs}; run pip install {figure.needs} first.")
    if figure.needs_data and data is None and not toy:
        raise LookupError(f"{name} needs files; give --data, a folder of those that `python -m benchmarks.data` lists.")
    module = importlib.import_module(f"benchmarks.{figure.module}")
    folders = {DATA: data or Path(), OUT: out, WORK: work}
    words = [_placed(word, folders) for word in (figure.toy if toy else figure.words).split()]
    for folder in (work, *(Path(word) if not Path(word).suffix else Path(word).parent for word in _outputs(words))):
        folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", [_path(figure.module), *words]))
        lowered = importlib.import_module(f"benchmarks.{figure.lowered or figure.module}")
        for constant, value in figure.constants.items() if toy else ():
            stack.enter_context(mock.patch.object(lowered, constant, value))
        module.main()


def seconds(name: str) -> float | None:
    """Wall seconds of the last drawing, by the head of its result; None if that does not say."""
    result = RESULTS / (FIGURES[name].result or "")
    return machine.took(result.read_text()) if result.is_file() else None


def _placed(word: str, folders: Mapping[str, Path]) -> str:
    """A word with its folder in place, or with blanks for underscores in the name of a shift."""
    head, _, tail = word.partition("/")
    return str(folders[head] / tail) if head in folders else word.replace("label_flip", "label flip")


def _outputs(words: list[str]) -> list[str]:
    return [value for option, value in itertools.pairwise(words) if option == "--out"]


def _path(module: str) -> str:
    """Path of the file, as if Python had been asked to start it."""
    return str(Path("benchmarks", *module.split(".")).with_suffix(".py"))
