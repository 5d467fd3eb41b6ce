"""Every block in README and docs is what it says it is: jobs load, commands exist, Python runs on a small lake."""

import argparse
import ast
import importlib
import itertools
import re
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.command.main import COMMANDS
from pipelines.command.words import WORDS
from pipelines.plan.command_line import TOOLS
from schemas.clustered_fl.config import load_clustered_fl_config
from schemas.kmeans.fit_config import load_config
from schemas.kmeans.stream_config import load_stream_config
from schemas.masked.config import validated_aggregate
from schemas.profile.config import load_profile_config
from schemas.reports.config import load_encode_config
from schemas.reports.windows import load_windowed_decode
from schemas.trusted_zone.assign_config import load_assign_config
from schemas.trusted_zone.evaluate_config import load_evaluate_config
from schemas.trusted_zone.sweep_config import load_sweep_config
from tests.scenes import pages
from tests.scenes.lake import run_command
from tests.scenes.pages import FENCE, ROOT

OTHER_WORDS = {"test", "lint", "docs", "flink-up", "flink-down", "prism-up"}
ALWAYS = {"--config", "--output", "--run_id", "--verbose", "--help"}
FLAGS = dict.fromkeys(COMMANDS, ALWAYS) | {
    "stream": {"--config", "--output", "--once", "--verbose"},
    "decode": ALWAYS | {"--once"},
    "upload": {"--config", "--exchange", "--released", "--client", "--verbose"},
    "aggregate": {"--config", "--exchange", "--verbose"},
    "unmask": {"--config", "--exchange", "--released", "--run_id", "--verbose"},
    "party": {"--config", "--client", "--exchange", "--output"},
    "ledger": {"--ledger", "--dataset", "--runs", "--epsilon", "--delta", "--scope", "--format", "--output"},
    **{name: {flag for flag in tool.flags if flag[:2] == "--"} for name, tool in TOOLS.items()},
}


def beam_flags():
    """All flags that Beam knows."""
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    return {flag for action in parser._actions for flag in action.option_strings}


def blocks(*languages):
    """(page, text) of all blocks in some languages."""
    return [pytest.param(page, text, id=name) for name, page, text in pages.blocks(*languages)]


def loaders(part):
    """What reads a block: every job for which it is meant."""
    text = yaml.safe_dump(part)
    if pages.is_of_a_fit(part):
        return [(load_config, yaml.safe_dump(pages.completed(part)))]
    if "stream" in part:
        return [(load_stream_config, text)]
    if "parties" in part:
        return [(lambda given: validated_aggregate(yaml.safe_load(given)), text)]
    if "sweep" in part:
        return [(load_sweep_config, text)]
    if "windows" in part:
        return [(load_windowed_decode, text)]
    if "reports" in part:
        return [(load_encode_config, text)]
    if "model" not in part:
        return [(load_clustered_fl_config, text)]
    return [(load, text) for load in (load_profile_config,) if "profile" in part] or [
        (load_assign_config, text),
        (load_evaluate_config, text),
    ]


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_a_job_loads(page, text):
    part = yaml.safe_load(text)
    for load, whole in loaders(part):
        assert load(whole)


def words_of(text):
    """Commands of a block, without comments and without what the shell fills in."""
    lines = text.replace("\\\n", " ").splitlines()
    commands = [shlex.split(re.sub(r"\$\([^)]*\)", "", line), comments=True) for line in lines]
    return [words for words in commands if words and words[0].rpartition("/")[2] in ("run_local.sh", "dapple")]


@pytest.mark.parametrize(("page", "text"), blocks("console", "sh", "bash", "shell"))
def test_a_command_exists(page, text):
    for _, *words in words_of(text):
        if words and words[0] not in (*OTHER_WORDS, "--help", "--version"):
            assert words[0] in COMMANDS
            flags = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert flags <= FLAGS[words[0]] | beam_flags()


PAGES_OF_JOBS = [
    *(ROOT / "docs" / "jobs").glob("*.md"),
    ROOT / "README.md",
    ROOT / "docs" / "start" / "five-minutes.md",
]


@pytest.mark.parametrize("page", PAGES_OF_JOBS, ids=lambda page: page.name)
def test_a_command_takes_the_job_above_it(page):
    """What a reader copies runs: the settings above a command are those of its job, and whole."""
    job, n_commands = "", 0
    for language, text in FENCE.findall(page.read_text()):
        if language == "yaml":
            job = text
        for _, *words in words_of(text) if language == "console" else ():
            if "--config" in words and "$" not in text:
                assert WORDS[words[0]].loaded(job)
                n_commands += 1
    assert n_commands


def imported(tree):
    """Modules that a block imports from these packages, with the names it takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in (
            "dapple_dp",
            "pipelines",
            "schemas",
            "transforms",
        ):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize(("page", "text"), blocks("python", "{code-cell}"))
def test_python_can_be_read(page, text):
    for module, name in imported(ast.parse(text)):
        assert hasattr(importlib.import_module(module), name)


def lake(folder):
    """Rows of two features between 0 and 100."""
    rows = np.random.default_rng(0).uniform(0.0, 100.0, size=(500, 2))
    (folder / "lake" / "rows").mkdir(parents=True)
    table = pa.table({"age": rows[:, 0], "hours": rows[:, 1]})
    pq.write_table(table, folder / "lake" / "rows" / "part.parquet")
    return rows


@pytest.mark.parametrize("name", ["README.md", "docs/start/five-minutes.md"])
def test_the_first_job_runs(name, tmp_path, monkeypatch):
    text = (ROOT / name).read_text()
    (job,) = [each for language, each in FENCE.findall(text) if language == "yaml"]
    commands = itertools.chain.from_iterable(words_of(each) for _, each in FENCE.findall(text))
    fit = next(words[1:] for words in commands if words[1:3] == ["fit", "--config"])
    lake(tmp_path)
    (tmp_path / "job.yaml").write_text(job)
    monkeypatch.chdir(tmp_path)
    done = run_command(*fit)
    assert done.code == 0, done.err
    files = {path.name for path in (tmp_path / "result").iterdir()}
    assert files == set(re.findall(r"^\| `([\w.]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE))


def test_the_readme_of_python_runs():
    text = (ROOT / "README.md").read_text()
    (block,) = [each for language, each in FENCE.findall(text) if language == "python"]
    rows = np.random.default_rng(0).normal(size=(500, 2))
    found = {"X": rows, "Q": rows[:50].copy()}
    exec(block, found)
    assert found["model"].cluster_centers_.shape == (10, 2)
