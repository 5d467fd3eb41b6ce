"""A folder in which one row of a table is played: commands on settings, each looked at in its own words."""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tests.scenes.lake import Outcome, run_command
from tests.seams import invariants
from tests.seams.array import Excluded, Factor, Row, Table
from tests.seams.invariants import Run, summary
from tests.seams.places import DATASET, Place, Settings

RUN_ID = "seam"
_LITTLE = 0.01
"""An epsilon that no run fits."""


class Desk:
    """A folder with the files of jobs and what they wrote."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        folder.mkdir(parents=True)

    def write(self, settings: Mapping[str, Any], name: str) -> str:
        """The file of a job."""
        config = self.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(dict(settings)))
        return str(config)

    def command(self, *words: str) -> Outcome:
        """A command, which ends well or is refused in a sentence."""
        outcome = run_command(*words)
        invariants.check_words(outcome)
        return outcome

    def run(self, word: str, settings: Mapping[str, Any], *words: str, name: str | None = None) -> Outcome:
        """A command on settings."""
        return self.command(word, "--config", self.write(settings, name or word), *words)

    def made(self, word: str, settings: Mapping[str, Any], name: str, *words: str) -> tuple[Run, Outcome]:
        """A job that ends well, in a folder of a name."""
        outcome = self.run(word, settings, *self.output(name), *words, name=name)
        assert outcome.code == 0, outcome.err
        return Run(folder=self.folder / name), outcome

    def output(self, name: str) -> tuple[str, str]:
        """The flag of an output folder."""
        return "--output", str(self.folder / name)

    def ledger(self, dataset: str, epsilon: float, name: str = "ledger") -> str:
        """A ledger, new or not, with a limit, half of which is for runs that compose by epsilon and delta alone."""
        path, delta = self.folder / f"{name}.sqlite", min(0.01, 1e-6 * epsilon)
        limits = {"epsilon": epsilon, "delta": delta, "basic_epsilon": epsilon / 2.0, "basic_delta": delta / 2.0}
        words = (word for option, value in limits.items() for word in (f"--{option}", str(value)))
        outcome = self.command("ledger", "limit", "--ledger", str(path), "--dataset", dataset, *words)
        assert outcome.code == 0, outcome.err
        return str(path)

    def verify(self, run: Run, ledger: str | None = None) -> dict[str, Any]:
        """The verdict on a run that is whole, and whose ledger knows it."""
        found = summary(self.command("verify", str(run.folder), *(("--ledger", ledger) if ledger else ())))
        assert found["verified"] is True
        assert bool(found["ledger"]) is (ledger is not None)
        statement = run.json("privacy.json")
        told = (statement["epsilon"], statement["delta"])
        # Only the account of a fit is recomposed.
        assert (found["epsilon"], found["delta"]) == (told if "algorithm" in statement else (None, None))
        return found


class RowStory(Desk):
    """One row of a table about one job, in a folder of its own.

    Args:
      row: of the table.
      place: where rows are.
      folder: new.
    """

    word, dataset, limit = "", DATASET, 200.0

    @property
    def leaves(self) -> bool:
        """Returns whether a refused run leaves what cost no privacy."""
        return False

    def __init__(self, row: Row, place: Place, folder: pathlib.Path):
        super().__init__(folder)
        self.row, self.place = row, place
        self.job = self.settings()
        if row.get("ledger", "none") != "none":
            self.job["ledger"] = self.ledger(self.dataset, _LITTLE if self.lacks else self.limit)
            self.job["data"]["name"] = self.dataset

    def settings(self) -> Settings:
        """The job of the row, but for its ledger."""
        raise NotImplementedError

    @property
    def lacks(self) -> bool:
        """Returns whether the ledger has too little at first."""
        return self.row.get("ledger") == "lacking"

    def started(self) -> tuple[Run, Outcome]:
        """The job, run once; where the ledger has too little, it is refused, and then the limit is raised."""
        if self.lacks:
            outcome = self.run(self.word, self.job, *self.output(self.word), "--run_id", RUN_ID)
            assert (outcome.code, (self.folder / self.word).exists()) == (3, self.leaves), outcome.err
            assert entries(self.job["ledger"], "reserve") == []
            self.ledger(self.dataset, self.limit)
        return self.made(self.word, self.job, self.word, "--run_id", RUN_ID)

    def ask_again(self, first: Outcome) -> None:
        """A fit, and any run that a ledger knows, is done; else its folder is in the way. Either way its files stay."""
        folder = self.folder / self.word
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        again = self.run(self.word, self.job, *self.output(self.word), "--run_id", RUN_ID)
        assert again.code == (0 if "ledger" in self.job or self.word == "fit" else 2), again.err
        if again.code == 0:
            assert summary(again) == summary(first)
        assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def check_charge(self, epsilon: float) -> None:
        """The ledger has one charge, of an epsilon; and what is asked for again is charged to nobody."""
        if "ledger" in self.job:
            (reserved,) = entries(self.job["ledger"], "reserve")
            assert reserved["content"]["charge"]["epsilon"] == epsilon

    def be_refused(self, refusal: str) -> None:
        """In a sentence, before anything is written."""
        outcome = self.run(self.word, self.job, *self.output("refused"), name="refused")
        assert (outcome.code, bool(re.search(refusal, outcome.err))) == (2, True), outcome.err
        assert not (self.folder / "refused").exists()


def entries(ledger: str, kind: str) -> list[dict[str, Any]]:
    """Entries of a kind, as the ledger exports them."""
    lines = run_command("ledger", "export", "--ledger", ledger).out.splitlines()
    return [each for each in map(json.loads, filter(None, lines)) if each["kind"] == kind]


def spent(ledger: str, dataset: str) -> Settings:
    """Returns what a ledger says that a data set has spent."""
    found = summary(run_command("ledger", "show", "--ledger", ledger))["datasets"][dataset]
    assert isinstance(found, dict)
    return found


def table_of(factors: Sequence[Factor], rules: Sequence[Excluded]) -> Table:
    """A table whose factors of most levels are first, from which fewer rows come."""
    return Table(factors=sorted(factors, key=lambda each: -len(each.levels)), excluded=rules)
