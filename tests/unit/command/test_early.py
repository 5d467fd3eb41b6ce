"""A setting that is given as a flag is answered with its place, and pages list the exit codes that a word can have."""

import importlib
import re

import pytest

from dapple_dp.pipelines.command import early, help_pages
from dapple_dp.pipelines.command import main as command
from dapple_dp.pipelines.command.job_schema import job_schema
from dapple_dp.pipelines.command.words import NEVER, TOOLS, WORDS
from dapple_dp.pipelines.plan import command_line as planning
from dapple_dp.pipelines.run.options import known_flags


def refusal(capsys, *words):
    code = command.main(list(words))
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    return said


@pytest.mark.parametrize("rest", [[], ["--config", "job.yaml", "--output", "out"]])
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            ["--epsilon", "3"],
            "--epsilon is a setting of the job file, not a flag; write it there as privacy.epsil",
        ),
        (["--epsilon=3"], "--epsilon is a setting"),
        (["--privacy.epsilon", "3"], "write it there as privacy.epsilon."),
        (
            ["--n-clusters", "3"],
            "--n-clusters is a setting of the job file, not a flag; write it there as n_clust",
        ),
        (["--runner=FlinkRunner", "--features", "a"], "write it there as data.features."),
        (["--steps", "3"], "write it there as dp_lloyd.steps or lloyd.steps"),
    ],
)
def test_the_refusal_of_a_setting_given_as_a_flag_names_its_place(capsys, rest, flags, told):
    said = refusal(capsys, "fit", *rest, *flags)
    assert told in said
    assert "did you mean" not in said


def test_plan_names_the_place_of_a_setting_and_takes_its_own_flags(capsys):
    for flag in ("--epsilon", "--n_clusters", "--domain"):
        assert f"{flag} is a setting of the job file" in refusal(capsys, "plan", "--config", "job.yaml", flag, "3")
    own = [flag for each in planning.TOOLS["plan"].params for flag in each.opts]
    assert {"--epsilons", "--width", "--rows"} <= set(own)
    for flag in own:
        early.refuse_settings("fit", [flag, "3"], own)


def test_settings_of_a_section_and_of_the_job_around_it_are_known(capsys):
    assert "as sweep.epsilons." in refusal(capsys, "sweep", "--epsilons", "1")
    assert "as privacy.epsilon." in refusal(capsys, "sweep", "--epsilon", "1")
    assert "as stream.windows." in refusal(capsys, "stream", "--windows", "3")


def test_flags_of_beam_are_left_to_beam():
    """Names that both have are Beam's, as before; what the list of these lacks would be refused by mistake."""
    both = set()
    for name in WORDS:
        schema = job_schema(name)
        names = early._names(schema, schema.get("$defs", {}))
        both |= {f"--{each.rpartition('.')[2]}" for each in names} & set(known_flags())
    assert both == set(early.BEAMS)
    for flag in early.BEAMS:
        for name in WORDS:
            early.refuse_settings(name, [flag, "3"])


def codes(capsys, *words):
    assert command.main([*words, "--help"]) == 0
    page = capsys.readouterr().out
    return {int(code) for code in re.findall(r"^  (\d+) ", page.partition("Exit codes:")[2], re.MULTILINE)}


@pytest.mark.parametrize("name", WORDS)
def test_a_job_that_charges_a_ledger_lists_its_refusal(capsys, name):
    charges = getattr(importlib.import_module(WORDS[name].module).JOB, "reserve", None) is not None
    assert not charges or 3 in codes(capsys, name)


def test_pages_list_no_code_that_cannot_be(capsys):
    everything = set(help_pages.EXIT_CODES)
    assert codes(capsys) == everything
    assert codes(capsys, "masked", "party") == codes(capsys, "masked", "party", "run") == codes(capsys, "masked")
    assert codes(capsys, "masked") == everything - {67}
    assert (codes(capsys, "fit"), codes(capsys, "stream")) == (everything - {6, 67}, everything - {6})
    assert codes(capsys, "masked", "party", "enroll") == {0, 1, 2, 5, 75, 130}
    assert codes(capsys, "assign") == {0, 1, 2, 4, 66, 75, 130}
    assert codes(capsys, "init") == {0, 1, 2, 66, 75, 130}
    assert codes(capsys, "verify") == {0, 1, 2, 5, 75, 130}
    assert codes(capsys, "ledger") == codes(capsys, "ledger", "limit") == {0, 1, 2, 3, 75, 130}
    assert set(NEVER) <= {*WORDS, *TOOLS}
