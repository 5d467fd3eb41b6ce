"""Late modules are what plain ones are, only later: to whoever asks, in whatever order, from whatever thread."""

import importlib
import subprocess
import sys
import threading
from types import ModuleType

import cloudpickle
import pytest

from pipelines.run import late_imports
from pipelines.run.late_imports import LATE, LateFinder, LateModule

BODY = "import late_house.diary\nlate_house.diary.LINES.append(__name__)\n"
HOUSE = {
    "__init__": "",
    "diary": "LINES = []\n",
    "slow": BODY + "import time\nfirst = 1\ntime.sleep(0.3)\nlast = 2\n",
    "star": BODY + "__all__ = ['shown']\nshown = 1\nhidden = 2\n",
    "asks": BODY + "from late_house import slow\nfirst = slow.first\n",
    "broken": BODY + "before = 1\nraise RuntimeError(f'attempt {len(late_house.diary.LINES)}')\n",
    "circle": BODY + "import late_house.back\nend = late_house.back.seen\n",
    "back": "import late_house.circle\nseen = hasattr(late_house.circle, 'end')\n",
}
PACKAGE = {
    "__init__": BODY + "from late_house.rooms.kitchen import Pan\nfrom late_house.rooms.cellar import Wine\n",
    "kitchen": BODY + "class Pan: pass\n",
    "cellar": BODY + "class Wine: pass\n",
    "empty": "",
}
TAKEN = {"Pan": "late_house.rooms.kitchen", "cellar": "late_house.rooms.cellar", "Moved": "late_house.rooms.empty"}


@pytest.fixture
def diary(tmp_path, monkeypatch):
    """Which bodies have run, of a package of which all modules but the diary are late."""
    for name, text in HOUSE.items():
        (tmp_path / "late_house").mkdir(exist_ok=True)
        (tmp_path / "late_house" / f"{name}.py").write_text(text)
    for name, text in PACKAGE.items():
        (tmp_path / "late_house" / "rooms").mkdir(exist_ok=True)
        (tmp_path / "late_house" / "rooms" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    late = {f"late_house.{name}": {} for name in HOUSE if name not in ("__init__", "diary", "back")}
    finder = LateFinder({**late, "late_house.rooms": TAKEN, "late_house.gone": {}})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    yield importlib.import_module("late_house.diary").LINES
    for name in [each for each in sys.modules if "late_house" in each]:
        del sys.modules[name]


def late(name) -> ModuleType:
    return importlib.import_module(f"late_house.{name}")


def test_a_body_runs_once_and_when_it_is_needed(diary):
    module = late("slow")
    assert (type(module), diary) == (LateModule, [])
    assert module.__name__ == module.__spec__.name == "late_house.slow"
    assert module.__file__.endswith("slow.py")
    assert module.__spec__.loader is module.__loader__
    assert importlib.util.find_spec("late_house.slow") is module.__spec__
    assert (module.last, module.first) == (2, 1)
    assert (type(module), diary) == (ModuleType, ["late_house.slow"])
    assert sys.modules["late_house.slow"] is module is late("slow")


def test_what_a_module_does_not_have_is_no_attribute_of_it(diary):
    module = late("slow")
    with pytest.raises(AttributeError, match=r"module 'late_house.slow' has no attribute 'none'"):
        _ = module.none
    assert diary == ["late_house.slow"]
    with pytest.raises(ImportError, match="cannot import name 'none'"):
        exec("from late_house.asks import none")


def test_names_are_imported_from_it_as_from_any(diary):
    names = {}
    exec("from late_house.star import *", names)
    assert names["shown"] == 1
    assert "hidden" not in names
    assert late("asks").first == 1
    assert diary == ["late_house.star", "late_house.asks", "late_house.slow"]


def test_threads_that_ask_at_once_see_a_whole_module(diary):
    module, seen, gate = late("slow"), [], threading.Barrier(8)

    def ask():
        gate.wait()
        seen.append((module.first, module.last))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [(1, 2)] * 8
    assert diary == ["late_house.slow"]


def test_a_body_that_fails_says_so_every_time(diary):
    module = late("broken")
    for attempt in (1, 2):
        with pytest.raises(RuntimeError, match=f"attempt {attempt}"):
            _ = module.after
    assert module.before == 1
    assert type(module) is LateModule


def test_bodies_that_import_each_other_see_what_is_there(diary):
    assert late("circle").end is False
    assert diary == ["late_house.circle"]


def test_names_of_a_package_are_taken_from_where_they_are(diary):
    exec("from late_house.rooms import Pan, cellar")
    assert diary == ["late_house.rooms.kitchen", "late_house.rooms.cellar"]
    rooms = late("rooms")
    assert (type(rooms), rooms.Pan) == (LateModule, late("rooms.kitchen").Pan)
    assert rooms.cellar is late("rooms.cellar")
    assert rooms.Wine is late("rooms.cellar").Wine
    assert diary[2:] == ["late_house.rooms"]
    assert rooms.Pan is late("rooms.kitchen").Pan


def test_a_name_that_has_moved_is_looked_for_in_the_package(diary):
    with pytest.raises(AttributeError, match="Moved"):
        _ = late("rooms").Moved
    assert diary == ["late_house.rooms", "late_house.rooms.kitchen", "late_house.rooms.cellar"]


def test_pickles_name_it(diary):
    module = late("slow")
    assert cloudpickle.loads(cloudpickle.dumps(module)) is module
    assert diary == []


def test_a_module_that_is_imported_anew_has_a_body_of_its_own(diary):
    first = late("slow")
    del sys.modules["late_house.slow"]
    second = late("slow")
    assert (first.last, second.last, first is second) == (2, 2, False)
    assert diary == ["late_house.slow"] * 2


def test_what_is_not_there_cannot_be_imported(diary):
    with pytest.raises(ModuleNotFoundError, match=r"late_house\.gone"):
        late("gone")


def test_a_library_imports_nothing_late():
    script = "import sys\nimport dapple_dp, dapple_dp.api\nprint([type(each).__name__ for each in sys.meta_path])\n"
    assert "LateFinder" not in said_by(script)


def test_a_process_begins_once(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for _ in range(2):
        late_imports.begin()
    assert [type(each) for each in sys.meta_path].count(LateFinder) == 1


BEGIN = "from pipelines.run import late_imports\nlate_imports.begin()\n"
CLUSTER = """
import numpy as np
from transforms.numerics.kmeans.starts import seeding, spaces
rows = np.random.default_rng(7).normal(size=(300, 12)) + 3.0 * (np.arange(300)[:, None] % 4 == np.arange(12) % 4)
found = seeding.weighted_kmeans(rows, np.arange(300.0), 4, 3, 11)
kept = [found.centers, found.labels, seeding.plus_plus(rows, 4, 5), *seeding.best_starts(rows, 4, 3, 2, 1)]
print(spaces.prefers_full_space(rows, 4), *(each.tobytes().hex() for each in kept))
"""
BODIES = """
import sys
print(*(name for name in late_imports.LATE if type(sys.modules.get(name)) is late_imports.LateModule), file=sys.stderr)
"""


def said_by(script, stream="stdout"):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return getattr(done, stream)


def test_clusters_are_the_same_octets():
    assert said_by(BEGIN + CLUSTER) == said_by(CLUSTER)


def test_clustering_asks_nothing_of_what_is_late():
    waiting = said_by(BEGIN + CLUSTER + BODIES, "stderr").split()
    assert set(waiting) >= {name for name in LATE if name.startswith(("scipy.", "sklearn."))}


def test_names_that_are_taken_early_are_those_of_the_whole_package():
    """And they are taken without its body, in the library that is installed."""
    said_by(
        BEGIN + "import importlib\n"
        "taken = {(own, name): getattr(importlib.import_module(own), name)\n"
        "         for own, names in late_imports.LATE.items() for name in names}\n"
        "packages = {own: importlib.import_module(own) for own, _ in taken}\n"
        "assert {type(each) for each in packages.values()} == {late_imports.LateModule}\n"
        "for (own, name), early in taken.items():\n"
        "    assert packages[own].__all__\n"
        "    assert vars(packages[own])[name] is early, (own, name)\n"
    )


@pytest.mark.parametrize(
    "script",
    [
        "from scipy import stats\nassert abs(stats.norm.ppf(0.975) - 1.96) < 1e-3",
        "import scipy.stats\nassert scipy.stats.rankdata([3, 1]).tolist() == [2, 1]",
        "import scipy.stats as law\nassert law.norm.cdf(0.0) == 0.5",
        "from scipy.stats.mstats import mquantiles\nassert len(mquantiles([1.0, 2.0])) == 3",
        "from sklearn.metrics import silhouette_score\nassert silhouette_score([[0], [0], [9]], [0, 0, 1]) > 0",
        "from sklearn.mixture import GaussianMixture\nGaussianMixture(2, random_state=0).fit([[0.0], [1.0], [9.0]])",
        "from scipy.special import log_ndtr, boxcox\nassert boxcox(1.0, 2.0) == 0.0 > log_ndtr(0.0)",
        "import scipy.special\nassert scipy.special.expit(0.0) == 0.5",
        "from scipy.spatial.transform import Rotation\nassert Rotation.identity().magnitude() == 0",
        "import numpy as np\nnp.testing.assert_allclose(np.ones(2), 1.0)",
        "from dp_accounting.pld import privacy_loss_distribution as law\nlaw.from_gaussian_mechanism(1.0)",
    ],
)
def test_whoever_needs_a_late_module_has_it(script):
    """In the ways in which libraries write it, after scikit-learn has left it late."""
    said_by(BEGIN + "from sklearn.cluster import KMeans\n" + script)
