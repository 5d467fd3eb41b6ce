"""The `ledger` job: sets limits, and shows, verifies and exports the spending of runs. Reads no data."""

import csv
import dataclasses
import io
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from dapple_dp.pipelines.ledger.postgres import RIGHTS
from dapple_dp.pipelines.ledger.private_state import check_published, digest_of
from dapple_dp.pipelines.ledger.remaining import balance
from dapple_dp.pipelines.ledger.store import CLIENT_LISTS, Ledger, charges_of, check_total, limits_of
from dapple_dp.pipelines.run.folder import MANIFEST
from dapple_dp.schemas.core.plan import Mechanism, PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, LedgerRefusedError, few, one_line
from dapple_dp.schemas.privacy.charge import Charge, Limit
from dapple_dp.schemas.privacy.ledger_entry import COLUMNS, LedgerEntry, RunStatus, check_open, moved_to, run_states
from dapple_dp.schemas.privacy.ledger_place import is_on_server
from dapple_dp.schemas.privacy.statement import NEIGHBORING_RELATION
from dapple_dp.schemas.privacy.wrong_statements import wrong_statements
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import VerifiedManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.privacy import ledger_filter

_USUAL_EPSILONS = (0.1, 0.5, 1.0, 3.0)
_USUAL_DELTA = 1e-6
_MOST_NAMED = 8
"""Largest number of runs that a notice names."""


def run(given: SimpleNamespace) -> dict[str, Any] | None:
    """Runs the command; returns its summary, or None if it printed rows.

    Raises:
      DappleError: if the action fails.
    """
    book = Ledger(given.ledger)
    if given.action == "limit":
        return _limit(book, given)
    if given.action == "show":
        return _show(book)
    if given.action == "plan":
        return _plan(book, given)
    if given.action == "verify":
        return _verify(book.entries(), given.head, given.outputs)
    if given.action == "copy":
        return _copy(book, Ledger(given.to))
    text = _rows(book.entries(), given.format)
    if given.output is None:
        sys.stdout.write(text)
        return None
    write_bytes(given.output, text.encode())
    return {"ledger": given.ledger, "output": given.output}


def _limit(book: Ledger, given: SimpleNamespace) -> dict[str, Any]:
    check_total(given.epsilon, given.delta, flag="--")
    for name, value, above in (("epsilon", given.basic_epsilon, math.inf), ("delta", given.basic_delta, 1.0)):
        if not 0.0 <= value < above:
            raise ConfigError(f"--basic_{name} must be a part of --{name}, got {value}; give 0 for none.")
    if given.basic_epsilon > given.epsilon or given.basic_delta > given.delta:
        raise ConfigError("--basic_epsilon and --basic_delta must be parts of the limit, got more; lower them.")
    if not given.dataset:
        raise ConfigError("--dataset must be a name, got nothing; give the data.name of the jobs.")
    limit = Limit(
        epsilon=given.epsilon,
        delta=given.delta,
        basic_epsilon=given.basic_epsilon,
        basic_delta=given.basic_delta,
        unit=None if given.unit is None else PrivacyUnit(given.unit),
    )
    book.set_limit(given.dataset, limit)
    entries = book.entries()
    if len(entries) == 1 and is_on_server(given.ledger):
        sys.stdout.write(f"A role that runs jobs needs these rights and no others: {RIGHTS.format(role='ROLE')}\n")
    held = charges_of(entries, given.dataset)
    runs = _runs_that_fit(given.dataset, limit, held)
    return dataclasses.asdict(limit) | {"ledger": given.ledger, "dataset": given.dataset, "runs": runs}


def _runs_that_fit(dataset: str, limit: Limit, held: Sequence[Charge]) -> list[dict[str, Any]]:
    """Counts the runs that fit a limit: Gaussian ones at usual epsilons, and ones like the last run."""
    delta = min(_USUAL_DELTA, limit.delta)
    charges = [_gaussian_charge(dataset, delta, limit, epsilon) for epsilon in _USUAL_EPSILONS]
    result = [
        {"epsilon": charge.epsilon, "delta": charge.delta, "runs": ledger_filter.how_many(limit, held, charge)}
        for charge in (*charges, *held[-1:])
    ]
    usual = ", ".join(f"{each['runs']:,} at epsilon {each['epsilon']:g}" for each in result[: len(charges)])
    sys.stdout.write(f"{dataset}: room for this many runs of one Gaussian release, delta {delta:g} each: {usual}\n")
    if held:
        sys.stdout.write(
            f"{dataset}: room for {result[-1]['runs']:,} more runs like the last one, {held[-1].job} with epsilon "
            f"{held[-1].epsilon:.6g}\n"
        )
    return result


def _copy(book: Ledger, other: Ledger) -> dict[str, Any]:
    """Moves all entries to another ledger; prints what isn't copied, and what to do next."""
    entries = book.copy_to(other)
    lists = "the folder that `state` names" if book.folder is None else f"{book.folder}{CLIENT_LISTS}"
    waiting = [run for run, status in run_states(entries).items() if status.word == "reserved"]
    named = few(waiting, _MOST_NAMED, str)
    begun = f"Charged and not complete: {named}. Resume them with the new ledger.\n" if waiting else ""
    sys.stdout.write(
        f"{len(entries)} entries of {book.path} are in {other.path}, with the same digests.\n"
        f"{book.path} is closed and takes no more charges. Name {other.path} in all jobs.\n{begun}"
        f"Not copied: client lists ({lists}), kept keys, outputs, and the folders OUTPUT.partial-RUN_ID of runs "
        "that go on.\n"
    )
    return {"ledger": book.path, "to": other.path, "entries": len(entries), "head": entries[-1].digest}


def _show(book: Ledger) -> dict[str, Any]:
    """Limit and spending of every data set, and the state of every run."""
    datasets: dict[str, Any] = {}
    entries = book.entries()
    to = moved_to(entries)
    if to is not None:
        sys.stdout.write(f"{book.path} was moved to {to} and is closed; this is what it held then.\n")
    for name in limits_of(entries):
        limit, epsilon, delta, _, charges = balance(entries, name)
        datasets[name] = {"limit": dataclasses.asdict(limit), "spent": {"epsilon": epsilon, "delta": delta}}
        given = math.fsum(each.delta for each in charges)
        sys.stdout.write(
            f"{one_line(name)}: epsilon {epsilon:.6g} of {limit.epsilon:g} spent, stated at delta {delta:.3g} of "
            f"{limit.delta:g}; charges: {len(charges)}, whose own deltas add up to {given:.3g}\n"
        )
    runs, lines = dict[str, Any](), dict[tuple[str, str], list[RunStatus]]()
    for run_id, status in run_states(entries).items():
        charge = status.charge
        about = {"dataset": charge.dataset, "job": charge.job, "state": status.word, "partition": charge.scope}
        runs[run_id] = about | {"epsilon": charge.epsilon, "delta": charge.delta}
        fault = None if status.state == "void" else charge.correction
        runs[run_id] |= {} if fault is None else {"correction": fault}
        wrong = () if status.state == "void" else wrong_statements(charge, status.versions)
        runs[run_id] |= {"wrong_statements": list(wrong)} if wrong else {}
        line = ("", run_id) if charge.epoch is None else (charge.dataset, str(charge.epoch["name"]))
        lines.setdefault(line, []).append(status)
    sys.stdout.writelines(f"  {one_line(_line(name, held))}\n" for (_, name), held in lines.items())
    sys.stdout.write(_notice({run_id: about.get("wrong_statements", []) for run_id, about in runs.items()}))
    return {"datasets": datasets, "runs": runs} | ({} if to is None else {"moved": to})


def _notice(wrong: Mapping[str, Sequence[str]]) -> str:
    """Lists wrong statements in outputs of earlier versions, a line each; epsilon and delta are not affected."""
    runs: dict[str, list[str]] = {}
    for run_id, statements in wrong.items():
        for statement in statements:
            runs.setdefault(statement, []).append(run_id)
    lines = [f"  {each} ({few(found, _MOST_NAMED, str)})\n" for each, found in runs.items()]
    return "".join(("Wrong in outputs of earlier versions; see CHANGELOG.md:\n", *lines)) if lines else ""


def _line(name: str, held: Sequence[RunStatus]) -> str:
    """The line for a run, or for all windows of an epoch, which are charged once."""
    charge = held[0].charge
    faults = {each.charge.correction for each in held if each.state != "void"} - {None}
    said = f"{name}: {charge.job} on {charge.dataset}, epsilon {charge.epsilon:.6g}"
    if charge.epoch is None:
        return "; ".join([f"{said}, {_state(held[0])}", *map(str, faults)])
    dates: dict[str, list[str]] = {}
    for each in held:
        dates.setdefault(each.state, []).append(str((each.charge.epoch or {})["window"]))
    windows = (f"{len(found)} {state} ({min(found)} to {max(found)})" for state, found in dates.items())
    return "; ".join([f"epoch {said} for all windows together, windows: {', '.join(windows)}", *map(str, faults)])


def _state(status: RunStatus) -> str:
    """The state of a run, with an explanation if it is lost."""
    more = "; charged, and nothing resumes a run in memory, unless its process still runs"
    return status.word + (more if status.word == "lost" else "")


def _plan(book: Ledger, given: SimpleNamespace) -> dict[str, Any]:
    """The largest epsilon at which the given number of further runs fit together."""
    entries = book.entries()
    check_open(entries, book.path)
    limit = limits_of(entries).get(given.dataset)
    if limit is None:
        raise LedgerRefusedError(
            f"--dataset must be a data set with a limit, got {given.dataset}; set one with `dapple ledger limit`."
        )
    if not 1 <= given.runs <= ledger_filter.MOST_RUNS:
        raise ConfigError(f"--runs must be from 1 to {ledger_filter.MOST_RUNS}, got {given.runs}; give their number.")
    delta = limit.delta if given.delta is None else given.delta
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"--delta must be strictly between 0 and 1, got {delta}; give that of each run.")
    held = charges_of(entries, given.dataset)
    last = next((each for each in reversed(held) if each.is_gaussian), None)
    charge = _gaussian_charge(given.dataset, delta, limit) if last is None else dataclasses.replace(last, delta=delta)
    each = ledger_filter.largest_epsilon(limit, held, charge, given.runs)
    sys.stdout.write(
        f"{given.dataset}: {given.runs} more runs of Gaussian releases fit with at most epsilon {each:g} each, "
        f"at delta {delta:g} each\n"
    )
    return {"dataset": given.dataset, "runs": given.runs, "epsilon": each, "delta": delta}


def _gaussian_charge(dataset: str, delta: float, limit: Limit, epsilon: float = 1.0) -> Charge:
    """The charge of a run with one Gaussian release at this epsilon."""
    charge = Charge(
        dataset=dataset,
        job="fit",
        unit=limit.unit or PrivacyUnit.RECORD,
        neighboring_relation=NEIGHBORING_RELATION,
        epsilon=epsilon,
        delta=delta,
        events=({"mechanism": str(Mechanism.DISCRETE_GAUSSIAN), "noise_multiplier": 1.0},),
    )
    return ledger_filter.with_epsilon(charge, epsilon)


def _verify(entries: Sequence[LedgerEntry], head: str | None, outputs: str | None) -> dict[str, Any]:
    """Confirms the chain, which reading has checked, a known earlier entry (`head`), and all outputs."""
    if head is not None and all(entry.digest != head for entry in entries):
        raise LedgerRefusedError(f"the ledger has no entry with the digest {head}; it was replaced or cut since.")
    known = {} if outputs is None else {"outputs": _check_outputs(entries, outputs)}
    return {"entries": len(entries), "head": entries[-1].digest if entries else None, "verified": True} | known


def _check_outputs(entries: Sequence[LedgerEntry], folder: str) -> int:
    """Counts the outputs below a folder that this ledger charged; raises if one of them isn't in it."""
    if not os.path.isdir(folder):
        raise ConfigError(f"--outputs must be a folder on a local disk, got {folder}; give the folder of the outputs.")
    found = 0
    for place, _, names in sorted(os.walk(folder)):
        if MANIFEST in names:
            path = os.path.join(place, MANIFEST)
            kind, remedy = LedgerRefusedError, "the ledger was replaced or restored since, or is another run's"
            refusal = Refusal(kind=kind, rule=f"{path} must be of a run that this ledger holds", remedy=remedy)
            raw = untrusted.read_bytes(path, refusal)
            manifest = json_schema.parse_as(raw, VerifiedManifest, refusal)
            if manifest.ledger is not None:
                check_published(entries, manifest, digest_of(raw), refusal)
                found += 1
    return found


def _rows(entries: Sequence[LedgerEntry], form: str) -> str:
    """Formats all entries, a line each."""
    if form == "jsonl":
        rows = [dict(zip(COLUMNS, entry.row, strict=True)) | {"content": entry.body} for entry in entries]
        return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(entry.row for entry in entries)
    return text.getvalue()
