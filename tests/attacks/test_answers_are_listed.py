"""Every function that answers another party gives its first answer: the list is made from the code.

What a role writes to an exchange is an answer. If it follows from rows, then it must be what the party has decided for
first, whatever its rows are by then; `test_asked_twice` asks each of them twice.
"""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = ("transforms/masked", "pipelines/masked")
WRITERS = {"write_once", "write_bytes", "_write", "_leave", "create", "put_in_place"}
ASKED_TWICE, PAIRWISE = "tests/attacks/test_asked_twice.py", "tests/pipeline/masked/test_pairwise_jobs.py"
SHARES = "tests/pipeline/masked/test_noise_share_jobs.py"
KEPT = {
    "Exchange._leave": (ASKED_TWICE, "test_a_message_that_was_taken_away_is_sent_again"),
    "Exchange.send": (ASKED_TWICE, "test_a_replayed_run_learns_nothing"),
    "Exchange.send_again": (ASKED_TWICE, "test_the_summary_of_a_second_answer_is_that_of_the_first"),
    "PairwiseExchange.send_rows": (ASKED_TWICE, "test_a_leg_with_other_rows_is_the_first_one"),
}
"""The party keeps the answer before it sends it, and sends it again from there; with the test that asks twice."""
NOTED = {
    "Exchange.countersign": (SHARES, "test_a_server_that_shows_two_lists_gets_neither_answered"),
    "PairwiseExchange.hand_out": (PAIRWISE, "test_a_second_list_is_not_answered"),
}
"""The party notes what it answers for first, and refuses anything else; with the test that shows it two."""
WITHOUT_ROWS = {
    "Exchange.open": "a nonce that is drawn, and the plan that settings give",
    "Exchange.publish_key": "a key that follows from the aggregator's own and the nonce",
    "Exchange.open_round": "a digest of releases, which all clients know",
    "Exchange.close_round": "a sum with noise under a nonce of its own, which is charged each time",
    "Exchange.refuse": "names of settings in which a job differs from the run's: no row decides them",
    "ClientsRole.keep_settings": "the settings of the run, whose digest its plan holds",
    "PairwiseExchange._close": "a list of what is in the exchange",
}
OWN = {
    *("ClientsRole.keep", "ClientsRole.commit", "PartyState.enroll", "RunState._first", "RunState._write"),
    *("RunState.end", "RunState.note", "unmask._keep", "unmask._write_result"),
}
"""What they write goes to a folder of the party's own."""


def functions():
    """Each function of the roles, by class (module where it has none) and name."""
    for place in PLACES:
        for file in sorted((ROOT / place).glob("*.py")):
            tree = ast.parse(file.read_text())
            for node in tree.body:
                owner = node.name if isinstance(node, ast.ClassDef) else file.stem
                for each in node.body if isinstance(node, ast.ClassDef) else [node]:
                    if isinstance(each, ast.FunctionDef):
                        yield f"{owner}.{each.name}", each


def calls(function):
    """Names that a function calls."""
    found = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in found}


def test_every_function_that_answers_is_listed():
    writing = {name for name, function in functions() if calls(function) & WRITERS} - {"Exchange._write"}
    assert writing == {*KEPT, *NOTED, *WITHOUT_ROWS, *OWN}, "say here why a second answer is the first one"


@pytest.mark.parametrize(("file", "test"), [*KEPT.values(), *NOTED.values()])
def test_each_is_asked_twice_by_a_test(file, test):
    tree = ast.parse((ROOT / file).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_what_follows_from_rows_goes_by_the_state_of_the_party():
    bodies = dict(functions())
    assert "first" in calls(bodies["Exchange._leave"])
    assert "sent" in calls(bodies["Exchange.send_again"])
    for name in ("Exchange.send", "PairwiseExchange.send_rows"):
        assert calls(bodies[name]) & WRITERS == {"_leave"}
