"""Every block in README and docs is what it says it is: jobs load, commands exist, Python can be read."""

import ast
import importlib

import pytest
import yaml

from dapple_dp.pipelines.command.words import GROUPS, WORDS
from dapple_dp.schemas.clustered_fl.config import load_clustered_fl_config
from dapple_dp.schemas.kmeans.fit_config import load_config
from dapple_dp.schemas.kmeans.jobs.stream_config import load_stream_config
from dapple_dp.schemas.masked.config import validated_aggregate
from dapple_dp.schemas.profile.config import load_profile_config
from dapple_dp.schemas.reports.config import load_encode_config
from dapple_dp.schemas.reports.windows import load_windowed_decode
from dapple_dp.schemas.trusted_zone.job_configs import load_assign_config, load_evaluate_config
from dapple_dp.schemas.trusted_zone.sweep_config import load_sweep_config
from tests.scenes import pages
from tests.scenes.pages import FENCE, ROOT, calls


def blocks(*languages):
    """(page, text) of all blocks in some languages."""
    return [pytest.param(page, text, id=name) for name, page, text in pages.blocks(*languages)]


def loaders(part):
    """Returns what reads a block: every job for which it is meant."""
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


PAGES_OF_JOBS = [*(ROOT / "docs" / "jobs").glob("*.md"), ROOT / "docs" / "start" / "five-minutes.md"]


@pytest.mark.parametrize("page", PAGES_OF_JOBS, ids=lambda page: page.name)
def test_a_command_takes_the_job_above_it(page):
    """Settings above a command are those of its job, and whole, so they run when a reader copies them."""
    job, n_commands = "", 0
    for language, text in FENCE.findall(page.read_text()):
        if language == "yaml":
            job = text
        for _, *words in calls(text) if language == "console" else ():
            if "--config" in words and "$" not in text:
                name = words[words[0] in GROUPS]
                assert WORDS[name].loaded(job)
                n_commands += 1
    assert n_commands


def imported(tree):
    """Modules that a block imports from these packages, with the names it takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "dapple_dp":
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize(("page", "text"), blocks("python", "{code-cell}"))
def test_python_can_be_read(page, text):
    for module, name in imported(ast.parse(text)):
        assert hasattr(importlib.import_module(module), name)


@pytest.mark.slow
def test_the_program_with_every_public_name_runs(tmp_path):
    assert "a run like this fits up to epsilon" in pages.run(ROOT / "docs/reference/api.md", tmp_path)
