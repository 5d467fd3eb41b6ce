"""A federation of three holders, a collector and an aggregator by a row of their table, beside one process as all."""

import json
import pathlib
import re
import shutil
from typing import Any

import yaml

from tests.scenes.lake import Outcome
from tests.seams import invariants
from tests.seams.array import Row
from tests.seams.desk import Desk, entries
from tests.seams.invariants import Run
from tests.seams.parties import DATASET, HOLDERS, N_SENDERS, Parties
from tests.seams.places import Place, Settings, changed

_OF_ROLES = ("roles", "one_unit")
"""What a statement says otherwise where the roles have jobs of their own."""


class PartyStory:
    """One row of the table, in a folder of its own."""

    def __init__(self, row: Row, _place: Place, folder: pathlib.Path):
        self.row, self.desk = row, Desk(folder)
        self.about = self._about()
        self.parties = Parties(row, folder, self.about)

    def _about(self) -> Settings:
        """Returns what the aggregator charges, or how much it adds up for at most."""
        kind = self.row["ledger"]
        if kind in ("charged", "lacking"):
            limit = 0.01 if kind == "lacking" else 50.0
            return {"ledger": self.desk.ledger(DATASET, limit), "name": DATASET, "unit": self.row["unit"]}
        if kind in ("limit", "small_limit"):
            return {"limit": {"epsilon": 4.0 if kind == "limit" else 0.5, "delta": 1e-6}}
        return {}

    def tell(self) -> None:
        """All rounds, and what came of them."""
        self.parties.open()
        n_rounds = (self._take_part if self.row["driver"] == "party" else self._play_steps)()
        run = Run(folder=self.desk.folder / "released" / "result")
        self.check_result(run, n_rounds)
        for config in self.desk.folder.rglob("job-*.yaml"):
            invariants.check_places(run, yaml.safe_load(config.read_text()))
        self.check_ledger(run)

    def _play_steps(self) -> int:
        """All jobs of all roles, one by one; the number of rounds."""
        self._step(self.parties.unmask(self.parties.collector))
        return len(list(iter(self.play_round, True))) + 1

    def _take_part(self) -> int:
        """One command for each party, which ends with the same run and without anybody left out."""
        collector, *clients, aggregator = ends = self.parties.take_part()
        assert all(isinstance(each, dict) for each in ends), ends
        result = str(self.desk.folder / "released" / "result")
        assert {each["output"] for each in (collector, *clients)} == {result}
        assert {each["run_id"] for each in ends} == {"run"}
        assert aggregator["left_out"] == {}
        (n_rounds,) = {each["rounds"] for each in ends}
        return n_rounds

    def play_round(self) -> bool:
        """One round; returns whether it was the last."""
        answers = self.row["noise_by"] == "clients"
        pairwise = self.row["scheme"] == "pairwise"
        n_legs = 3 if pairwise else 1
        for leg in range(n_legs + answers + pairwise):
            for holder in range(len(HOLDERS)):
                # Who has signed a sum waits for others before it answers.
                self._upload(holder, again=leg < n_legs and not holder)
            if leg < n_legs:
                self._step(self.parties.aggregate())
        self._step(self.parties.unmask(self.parties.collector))
        return (self.desk.folder / "released" / "result").exists()

    def _upload(self, holder: int, *, again: bool = False) -> None:
        """A step of a holder, and once more: a second one sends nothing else."""
        words = ("--client", self.parties.names[holder])
        self._step(self.parties.clients_job("upload", holder, *words))
        if again:
            before = self._sent()
            self._step(self.parties.clients_job("upload", holder, *words))
            assert self._sent() == before

    def _sent(self) -> dict[pathlib.Path, bytes]:
        """All bytes between the parties."""
        folders = (self.desk.folder / "exchange", self.desk.folder / "released")
        return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}

    def _step(self, outcome: Outcome) -> dict[str, Any]:
        """The last line of a step that ends well."""
        invariants.check_words(outcome)
        assert outcome.code == 0, outcome.err
        found = json.loads(outcome.out.splitlines()[-1])
        assert isinstance(found, dict)
        return found

    def check_result(self, run: Run, n_rounds: int) -> None:
        """Files and page agree, and it is that of one process that plays all roles."""
        asked = self.parties.job(0)["privacy"]
        alone, _ = self.alone()
        for check in (invariants.check_files, invariants.check_releases, invariants.check_entry):
            check(run)
        invariants.check_clusters(run)
        by_clients = self.row["noise_by"] == "clients"
        most = {"aggregator": 1.0, "both": 2.0, "clients": float(N_SENDERS)}[self.row["noise_by"]]
        invariants.check_account(run, (1.0 if by_clients else most, most))
        invariants.check_page(run, asked)
        told, expected = run.json("privacy.json"), alone.json("privacy.json")
        assert len(told["masked"]["message_bytes"]) == n_rounds
        for each in (told, expected):
            each["masked"] = {name: value for name, value in each["masked"].items() if name not in _OF_ROLES}
        assert told == expected
        assert run.json("run.json")["features"] == alone.json("run.json")["features"]
        self.desk.verify(run)

    def alone(self) -> tuple[Run, Outcome]:
        """The job in one process, on the rows of all."""
        job = changed(self.parties.job(0), {"masked.state_uri": None})
        folder = self.desk.folder / "all"
        folder.mkdir()
        for holder in range(len(HOLDERS)):
            for file in (self.desk.folder / f"lake-{holder}").iterdir():
                shutil.copy(file, folder / f"{holder}-{file.name}")
        job["data"]["path"] = str(folder)
        return self.desk.made("fit", job, "alone", "--run_id", "alone")

    def check_ledger(self, run: Run) -> None:
        """The aggregator has charged each round once, and all of them together what the run states."""
        if "ledger" not in self.about:
            return
        reserved, committed = (entries(self.about["ledger"], kind) for kind in ("reserve", "commit"))
        statement = run.json("privacy.json")
        charged = [event["path"] for each in reserved for event in each["content"]["charge"]["events"]]
        assert charged == [event["path"] for event in statement["events"]]
        assert len(committed) == len(reserved)
        assert {each["content"]["charge"]["unit"] for each in reserved} == {statement["unit"]}

    def be_refused(self, refusal: str) -> None:
        """The clients' role refuses the job in a sentence."""
        if self.row["places"] == "usual":
            self.parties.open()
        outcome = self.parties.unmask(0)
        invariants.check_words(outcome)
        assert outcome.code == 2, outcome.err
        assert re.search(refusal, outcome.err), outcome.err

    def lack_budget(self) -> None:
        """The aggregator refuses the first sum, and says why."""
        self.parties.open()
        self._step(self.parties.clients_job("unmask", self.parties.collector, "--run_id", "run"))
        outcome = self.parties.aggregate()
        if self.row["ledger"] == "lacking":
            self._step(outcome)
            for holder in range(len(HOLDERS)):
                self._upload(holder)
            outcome = self.parties.aggregate()
        # What exceeds a limit of the aggregator's own is a plan that is not what it must be.
        assert outcome.code == (3 if self.row["ledger"] == "lacking" else 5), outcome.err
        assert outcome.err.splitlines()[-1].endswith(".")
        assert "epsilon" in outcome.err
