"""The estimators need no more than `requirements-core.txt`, and what needs more says what to install."""

import pathlib
import re
import types

import pytest
import yaml

import dapple_dp
from dapple_dp.pipelines.command import main
from dapple_dp.schemas.errors import not_installed
from tests.scenes import installed, lake

ROOT = pathlib.Path(__file__).resolve().parents[3]
CORE = ROOT / "requirements-core.txt"
SCRIPT = """
import importlib.util
import pydoc
import sys
import warnings

import numpy as np

import dapple_dp
from dapple_dp import DPKMeans, DPTopics, Ledger, PrivateScaler

warnings.simplefilter("ignore")
given, rows = {"epsilon": 4.0, "delta": 1e-6}, np.random.default_rng(0).uniform(-1, 1, (400, 2))
assert importlib.util.find_spec("apache_beam") is None
ledger = Ledger("budget.sqlite").limit("rows", epsilon=9, delta=1e-5)
model = DPKMeans(3, **given, domain=(-1, 1), ledger=ledger, data_name="rows")
str(model.plan(400, columns=2, epsilons=(1.0, 4.0)))
labels = model.fit(PrivateScaler((-1, 1)).fit_transform(rows)).predict(rows)
model.report().save("report.html")
model.save("model")
assert (DPKMeans.load("model").predict(rows) == labels).all()
assert len(model.cut(2).cluster_centers_) == 2
assert ledger.remaining("rows").epsilon < 9
DPKMeans(3, **given, domain=(-1, 1), unit="client", client_rows=4).fit(rows, groups=np.arange(400) // 4)
DPKMeans(3, **given).fit(rows, server_data=rows[:90] + 0.1)
DPKMeans(3, **given, clipping_norm=1.5, settings={"quality": {}}).fit(rows)
DPTopics(2, **given, vocabulary=["a", "b"], unit="record", reason="a test").fit(None, terms=[["a"], ["b"]] * 200)
assert "DPKMeans" in pydoc.render_doc(dapple_dp)
try:
    dapple_dp.fit
except ModuleNotFoundError as error:
    print(error)
"""
SENTENCE = re.compile(r"This needs apache-beam, which is not installed; run pip install 'apache-beam[<>=.,\d]+'\.")


def pins(path):
    return re.findall(r"^[^#\s].*(?:\n    .*)*", path.read_text(), re.MULTILINE)


def names():
    return [pin.partition("==")[0] for pin in pins(CORE)]


def test_the_pins_are_those_of_a_run_but_for_beam():
    assert set(pins(CORE)) < set(pins(ROOT / "requirements.txt"))
    assert not {"apache-beam", "pipeline-dp", "grpcio"} & set(names())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("apache_beam.options", "This needs apache-beam, which is not installed; run pip install 'apache-beam"),
        ("yaml", None),
        ("dapple_dp.nothing", None),
        (None, None),
    ],
)
def test_only_a_requirement_that_is_missing_has_a_command(name, sentence):
    found = not_installed(ModuleNotFoundError("No module", name=name))
    assert found is None if sentence is None else found.startswith(sentence)
    assert not_installed(ImportError("No module", name=name)) is None


def test_a_job_without_beam_says_in_one_sentence_what_to_install(monkeypatch, tmp_path):
    def missing(*_, **__):
        raise ModuleNotFoundError("No module named 'apache_beam'", name="apache_beam")

    monkeypatch.setattr(main, "_run_job", missing)
    outcome = lake.run_job(lake.job(str(tmp_path / "rows.parquet"), str(tmp_path / "server.parquet")), tmp_path)
    assert outcome.code == 2
    assert SENTENCE.search(outcome.err)
    assert len(outcome.lines) == 1


def test_a_name_that_needs_beam_says_so(monkeypatch):
    def missing(_):
        raise ModuleNotFoundError("No module named 'apache_beam'", name="apache_beam")

    monkeypatch.setattr(dapple_dp, "importlib", types.SimpleNamespace(import_module=missing))
    with pytest.raises(ModuleNotFoundError, match=SENTENCE):
        dapple_dp.__getattr__("evaluate")


@pytest.mark.slow
def test_estimators_work_with_the_core_alone(wheel, tmp_path):
    """An environment that has the wheel and the packages of these pins: nothing else that the tests have."""
    environment = installed.new_environment(tmp_path / "venv", only=names())
    environment.install(wheel)
    done = environment.run(environment.python, "-c", SCRIPT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert SENTENCE.fullmatch(done.stdout.strip()), done.stdout
    done = environment.run(environment.dapple, "verify", "model", cwd=tmp_path)
    assert '"verified": true' in done.stdout, done.stderr
    job = lake.job(str(tmp_path / "rows.parquet"), str(tmp_path / "server.parquet"))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    done = environment.run(environment.dapple, "fit", "--config", "job.yaml", "--output", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert SENTENCE.search(done.stderr)
    assert "<html" in (tmp_path / "report.html").read_text()
