"""The configs and commands of three hospitals in docs/masked.md are run as they stand, keys and places apart."""

import json
import pathlib
import re
import shlex
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.masked.exchange import ExchangePlan
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from tests.scenes import crashes, lake, separate_parties
from tests.unit.test_docs_paths import ROOT

pytestmark = pytest.mark.slow
PARTIES = ("aggregator", "collector", "north", "east", "south")
HOSPITALS = PARTIES[2:]
FENCE = re.compile(r"^```(yaml|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)
MEANS = np.array([[-0.5, -0.5], [0.5, 0.5], [0.5, -0.5]])


def section():
    """The blocks under the heading, in order."""
    text = (ROOT / "docs/masked.md").read_text()
    part = text[text.index("### Three hospitals, from keys to centers") :].partition("\n## ")[0]
    return [block for _, block in FENCE.findall(part)]


class Ward:
    """A folder in the place of `/`, and what the commands have printed."""

    def __init__(self, folder):
        self.folder, self.keys, self.summaries, self.logs = folder, {}, [], []
        for place in (*(f"keys/{party}" for party in PARTIES), *(f"data/{name}" for name in HOSPITALS)):
            (folder / place).mkdir(parents=True)
        for seed, name in enumerate(HOSPITALS):
            noise = np.random.default_rng(seed).normal(0.0, 0.05, (900, 2))
            points = (MEANS[np.arange(900) % 3] + noise).T
            rows = pa.table(dict(zip(("age", "income"), points, strict=True)))
            pq.write_table(rows, folder / f"data/{name}/rows.parquet")

    def placed(self, text):
        """A text whose absolute paths are in the folder."""
        return re.sub(r"/(keys|data|exchange|released|state)\b", rf"{self.folder}/\1", text)

    def write(self, name, text):
        """A job with the keys that were printed."""
        for party in PARTIES:
            text = re.sub(rf"^(\s+{party}: )[0-9a-f]{{64}}$", rf"\g<1>{self.keys[party]}", text, flags=re.MULTILINE)
        (self.folder / name).write_text(self.placed(text))

    def words_of(self, line):
        """One command, whose places are in the folder."""
        return shlex.split(re.sub(r"(?<=--config )", f"{self.folder}/", self.placed(line)))

    def run(self, line):
        """One command."""
        words = self.words_of(line)
        if words[0] != "dapple":
            subprocess.run(["bash", "-c", self.placed(line)], cwd=self.folder, check=True)
            return
        outcome = lake.run_command(*words[1:])
        assert outcome.code == 0, (line, outcome.err)
        if words[1:4] == ["masked", "party", "new"]:
            self.keys[pathlib.Path(words[-1]).parent.name] = outcome.out.strip()

    def play(self, lines):
        """Commands that are started together, each a process of its own; what each has printed last, and its log."""
        processes = []
        for number, line in enumerate(lines):
            (own := self.folder / f"party-{number}").mkdir()
            words = [*self.words_of(line)[1:], *separate_parties.QUICK]
            run = (None, str(own), {}, separate_parties.run_command, words, None)
            processes.append(crashes._CONTEXT.Process(target=separate_parties.as_user, args=run))
            processes[-1].start()
        for number, process in enumerate(processes):
            process.join(600)
            own = self.folder / f"party-{number}"
            assert process.exitcode == 0, (own / "log").read_text()
            self.summaries.append(json.loads((own / "out").read_text()))
            self.logs.append((own / "log").read_text())


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    ward = Ward(tmp_path_factory.mktemp("ward"))
    north, aggregate, once, each = section()
    lines = once.splitlines()
    for line in lines[: len(PARTIES)]:
        ward.run(line)
    ward.write("north.yaml", north)
    ward.write("aggregate.yaml", aggregate)
    for line in lines[len(PARTIES) :]:
        ward.run(line)
    ward.play(each.splitlines())
    return ward


def test_the_hospitals_get_their_centers(ward):
    centers = pq.read_table(f"{ward.summaries[-1]['output']}/centers.parquet")["center"].to_numpy()
    assert len(centers) == 3
    assert {each["output"] for each in ward.summaries if "output" in each} == {str(ward.folder / "released/result")}
    assert ward.summaries[3]["left_out"] == {}
    assert "north waits for" in ward.logs[0]


def test_the_plan_and_the_statement_say_how_the_noise_is_split(ward):
    raw = (ward.folder / "exchange" / "plan.json").read_bytes()[:-64]
    assert ExchangePlan.from_json(raw).shares == ShareLaw(threshold=2)
    privacy = json.loads(pathlib.Path(ward.summaries[-1]["output"], "privacy.json").read_text())
    assert privacy["neighboring_relation"] == "zeroed_out"
    rows = [(row["parties"], row["holds"]) for row in privacy["masked"]["coalitions"]]
    assert rows[0] == ("the aggregator and all readers of the releases", True)
    assert not any(holds for _, holds in rows[1:])


def test_every_line_of_the_page_names_a_place_that_the_test_moves():
    for block in section():
        assert not re.search(r"(?<![\w/.])/(?!keys|data|exchange|released|state|dev|north|east|south)", block)
