"""The job and the commands of docs/how-to/run-a-federation.md, run as they stand by three hospitals that nobody has.

Each party has a folder of its own, its own order of columns, and types what the page says.
"""

import contextlib
import hashlib
import json
import re
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from examples.hospitals import make_cohort
from tests.scenes import crashes, lake, officer, separate_parties
from tests.unit.test_docs_paths import ROOT

HOSPITALS = ("north", "east", "south")
PARTIES = ("aggregator", "collector", *HOSPITALS)
PAGE = (ROOT / "docs/how-to/run-a-federation.md").read_text()
JOB, AGGREGATORS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
SHOWN, CODES = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for line in PAGE.splitlines() if line.startswith("dapple ")]
N_PATIENTS = 400


def command(start, party="north"):
    """The words of the page's one command that begins so, for a party."""
    (line,) = (each for each in COMMANDS if each.startswith(start))
    return shlex.split(line.replace("north", party))[1:]


SOUTH = "{delimiter: ';', decimal: ','}"
"""How the files of one hospital are read, which is its own matter."""


def _as_a_spreadsheet_has_it(path):
    rows = [line.split(",") for line in path.read_text().splitlines()]
    rows = [[re.sub(r"^(-?[0-9]+)[.]([0-9]+)$", r"\1,\2", field) for field in row] for row in rows]
    path.write_text("".join(";".join(row) + "\n" for row in rows))


class Ward:
    """Folders of all parties, and what each has printed once."""

    def __init__(self, folder):
        self.folder, self.said = folder, {}
        for party in PARTIES:
            (folder / party / "keys").mkdir(parents=True, mode=0o700)
        for hospital in HOSPITALS:
            make_cohort.write(folder / hospital / "visits.csv", hospital, N_PATIENTS)
        _as_a_spreadsheet_has_it(folder / "south" / "visits.csv")

    def run(self, party, words):
        """A command that a party types in its folder; what it prints."""
        with contextlib.chdir(self.folder / party):
            outcome = lake.run_command(*words)
        assert outcome.code == 0, (party, words, outcome.err)
        return outcome.out

    def set_up(self):
        """All that is done once."""
        for party in PARTIES:
            self.said[party] = self.run(party, command("dapple masked party new", party))
        lines = {party: re.findall(rf"^  {party}: (\S+)$", said, re.MULTILINE)[0] for party, said in self.said.items()}
        for party in PARTIES:
            text = AGGREGATORS if party == "aggregator" else JOB
            for name, line in lines.items():
                text = re.sub(rf"^( +{name}: )\S{{48}}$", rf"\g<1>{line}", text, flags=re.MULTILINE)
            if party == "south":
                text = text.replace("  path: visits.csv\n", f"  path: visits.csv\n  csv: {SOUTH}\n")
                assert SOUTH in text
            (self.folder / party / "job.yaml").write_text(text)
        for hospital in HOSPITALS:
            self.run(hospital, command("dapple masked party enroll", hospital))
        self.run("collector", command("dapple masked party enroll")[:-2])
        self.run("aggregator", command("dapple ledger limit"))

    def play(self):
        """All parties at once, each a process; what each has printed last."""
        starts = {name: "dapple masked party --role client " for name in HOSPITALS}
        starts |= {name: f"dapple masked party --role {role} " for name, role in OFFICES.items()}
        processes = {}
        for party, start in starts.items():
            words = [word.replace("/shared", str(self.folder / "shared")) for word in command(start, party)]
            run = (
                None,
                str(self.folder / party),
                {},
                separate_parties.run_command,
                [*words, *separate_parties.QUICK],
                None,
            )
            processes[party] = crashes._CONTEXT.Process(target=separate_parties.as_user, args=run)
            processes[party].start()
        for party, process in processes.items():
            process.join(1500)
            assert process.exitcode == 0, (self.folder / party / "log").read_text()
        return {party: json.loads((self.folder / party / "out").read_text()) for party in PARTIES}


OFFICES = {"aggregator": "aggregator", "collector": "clients"}


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    ward = Ward(tmp_path_factory.mktemp("ward"))
    ward.set_up()
    return ward


@pytest.fixture(scope="module")
def ends(ward):
    return ward.play()


def test_everybody_sees_the_words_that_each_party_reads_out(ward):
    assert "dapple masked party check job.yaml" in COMMANDS
    out = ward.run("east", ["masked", "party", "check", "job.yaml"])
    for party in PARTIES:
        assert f"  {party:10}  {ward.said[party].splitlines()[-1].strip()}\n" in out


def test_all_jobs_agree_and_the_aggregator_charges(ward):
    files = [str(ward.folder / party / "job.yaml") for party in PARTIES]
    out = ward.run("north", ["masked", "party", "check", *files])
    assert out.startswith(
        "4 jobs of clients and collector and that of the aggregator agree.\n"
        "The aggregator charges data set visits in keys/ledger.sqlite.\n"
    )


def test_the_plan_says_before_there_are_keys_what_will_be_seen(ward):
    without = JOB[: JOB.index("  identity_uri")]
    (ward.folder / "plan").mkdir()
    (ward.folder / "plan" / "job.yaml").write_text(without)
    out = ward.run("plan", command("dapple plan"))
    assert set(SHOWN.splitlines()) <= set(out.splitlines())


def test_codes_are_planned_as_the_page_says(ward):
    job = JOB[: JOB.index("  identity_uri")]
    job = job.replace("algorithm: dp_lloyd", "experimental: true\nalgorithm: k_prototypes")
    job = job.replace("\ndp_lloyd:", "\nk_prototypes:").replace("lactate]", "lactate, icd10]", 1)
    (ward.folder / "codes").mkdir()
    (ward.folder / "codes" / "job.yaml").write_text(job + CODES)
    out = ward.run("codes", command("dapple plan"))
    assert "A mode is clear if its code has about" in out


@pytest.mark.slow
def test_the_hospitals_get_their_clusters(ward, ends):
    result = ward.folder / "shared/released/result"
    assert {end["output"] for name, end in ends.items() if name != "aggregator"} == {str(result)}
    assert ends["aggregator"]["left_out"] == {}
    assert len(pq.read_table(result / "centers.parquet")) == 4


@pytest.mark.slow
def test_each_hospital_sends_one_message_of_all_its_patients(ward, ends):
    """The aggregator sees as many messages as hospitals; it learns nothing about how many patients each has."""
    for path in (ward.folder / "shared/exchange").glob("*/sum.parquet"):
        masked = pq.read_table(pa.BufferReader(path.read_bytes()[:-64]))
        assert len(masked["senders"][0]) == 3


@pytest.mark.slow
def test_the_statement_is_what_the_page_promises(ward, ends):
    privacy = json.loads((ward.folder / "shared/released/result/privacy.json").read_text())
    assert (privacy["unit"], privacy["delta"]) == ("client", 1e-6)
    assert privacy["epsilon"] <= 1.0
    rows = {row["parties"]: row["holds"] for row in privacy["masked"]["coalitions"]}
    everybody = "the aggregator, the collector, all readers of the releases"
    assert rows[f"{everybody} and at most 0.34 of the listed senders"]
    assert not rows["more than 0.34 of the listed senders"]
    law = ShareLaw(threshold=3, corrupt=0.34, dropout=0.0)
    assert (law.counted(3), law.quorum(3)) == (2, 3)


@pytest.mark.slow
def test_the_ledger_is_charged_once_for_each_round(ward, ends):
    out = ward.run("aggregator", ["ledger", "show", "--ledger", "keys/ledger.sqlite"])
    assert f"charges: {ends['aggregator']['rounds']}, whose" in out
    assert len(re.findall(r"aggregate on visits, epsilon [.\d]+, committed", out)) == ends["aggregator"]["rounds"]


@pytest.mark.slow
def test_each_sentence_of_the_result_has_its_row_in_the_officers_file(ward, ends):
    """But for what the tree of the centers says, on which noise decides."""
    out = ward.run("aggregator", ["ledger", "show", "--ledger", "keys/ledger.sqlite"])
    said = officer.stated(ward.folder / "shared/released/result", out)
    rows = {officer.plain(row.sentence): row.file for row in officer.listed()}
    of_tree = (
        "No gap between",
        "The widest gap",
        "These are then together",
        "dapple assign --level",
        "The tree cannot tell",
    )
    for found in (said, rows):
        for sentence in [each for each in found if each.startswith(of_tree)]:
            del found[sentence]
    assert said == rows


def test_the_cohort_is_the_same_each_time_and_has_what_exports_have(tmp_path):
    digests = set()
    for name in ("one", "two"):
        make_cohort.write(tmp_path / name, "east", 50)
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1
    found = {hospital: make_cohort.visits(hospital, 50) for hospital in HOSPITALS}
    assert len({make_cohort.HOSPITALS[each].index("sodium") for each in HOSPITALS}) == 3
    for rows in found.values():
        assert len({row["patient"] for row in rows}) == 50 < len(rows)
        assert {row[lab] == "" for row in rows for lab in make_cohort.LABS} == {True, False}
        assert all(re.fullmatch(r"[A-Z]\d\d\.\d", str(row["icd10"])) for row in rows)
