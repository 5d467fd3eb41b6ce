"""The `party` subcommands: make a party's key, enroll the party, compare jobs, and delete sent answers."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.masked.clients_settings import check_job, check_keys, differing, shared_settings
from dapple_dp.pipelines.run.flags import check_name
from dapple_dp.pipelines.run.folder import absolute
from dapple_dp.pipelines.run.options import read_text
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.pipelines.run.versions import version
from dapple_dp.schemas.choices import MaskScheme
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, load_config
from dapple_dp.schemas.masked.config import COLLECTOR, AggregateConfig, party_line, validated_aggregate
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.transforms.files.stores import is_local
from dapple_dp.transforms.masked.exchange_files import Exchange
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.masked.signing import signing_parties
from dapple_dp.transforms.masked.spoken_words import spoken_words
from dapple_dp.transforms.numerics.masked.public_keys import KEY_BYTES, public_part
from dapple_dp.transforms.privacy.key_files import create_key, make_key, read_key

_LONGEST_VALUE = 60
_ADVICE = {
    "data.features": "list the same columns in the same order",
    "data.missing": "agree on the numbers that stand for missing values",
    "masked.parties": "ask that party for its line and its six words",
    "parties": "ask that party for its line and its six words",
    "privacy": "agree on what is promised to patients",
}
"""What to do about a setting that differs, by the first letters of its name."""


def new(name: str, output: str) -> str:
    """Makes a new private key, a file of mode 0600; returns what to print: the line of the party, and its words."""
    check_stores({"--output": output})
    party_line(name, bytes(KEY_BYTES))
    create_key(output, "--output")
    key = public_part(read_key(output, "--output"))
    return (
        f"Send this line to all other parties; each has it under `parties` in its job:\n\n  {party_line(name, key)}\n\n"
        f"When they call you, read out the six words of {name}:\n\n  {spoken_words(name, key.hex())}\n"
    )


def enroll(config: str, client: str) -> str:
    """Creates the state of a party, and a missing secret for pairwise masks; returns the folder to print."""
    settings = _job(config, client)
    check_job(settings, client)
    signing_parties(settings.masked.parties, settings.masked.identity_uri, client or COLLECTOR)
    masked, secret = settings.masked, str(settings.masked.secret_uri)
    if masked.scheme is MaskScheme.PAIRWISE:
        make_key(secret, "masked.secret_uri")
    return PartyState.enroll(str(masked.state_uri), secret, client).folder + "\n"


def forget(config: str, client: str, exchange: str) -> str:
    """Deletes the answers that a party sent in one exchange, or in all runs; returns their number to print."""
    masked = _job(config, client).masked
    party = PartyState.of(str(masked.state_uri), str(masked.secret_uri), client)
    runs = party.runs()
    if exchange:
        check_stores({"--exchange": exchange})
        parties = signing_parties(masked.parties, masked.identity_uri, client)
        runs = [party.of_run(Exchange(absolute(exchange), parties).plan().nonce)]
    for run in runs:
        run.end()
    return f"{len(runs)}\n"


def check(files: Sequence[str]) -> str:
    """Compares the jobs of all parties, or shows one, before anything is sent; returns a summary to print.

    Raises:
      ConfigError: if a job belongs to no party, jobs differ in settings that they must share, or a private key that
        is here is that of no listed party.
    """
    jobs = {path: _any_job(path) for path in files}
    clients = {path: job for path, job in jobs.items() if isinstance(job, FitConfig)}
    aggregators = {path: job for path, job in jobs.items() if isinstance(job, AggregateConfig)}
    if len(aggregators) > 1 or (len(jobs) > 1 and not clients):
        raise ConfigError(
            f"Give the job files of all parties, one of them the aggregator's, got {len(clients)} of clients "
            f"and {len(aggregators)} of an aggregator."
        )
    settings = {path: shared_settings(job) for path, job in clients.items()}
    differences = _all_differences(settings, clients, aggregators)
    if differences:
        raise ConfigError(f"The jobs differ. {' '.join(dict.fromkeys(differences))}")
    both = " and that of the aggregator" if aggregators else ""
    agree = "agree" if len(jobs) > 1 else "can be used"
    lines = [f"{plural(len(clients), 'job')} of clients and collector{both} {agree}.\n"] if clients else []
    for job in aggregators.values():
        charges = f"The aggregator charges data set {job.name} in {job.ledger}.\n"
        lines.append(charges if job.ledger else "No ledger is charged: the aggregator's job has none.\n")
    parties = next((job.parties for job in aggregators.values()), None) or next(
        (job.masked.parties for job in clients.values()), None
    )
    lines += _to_compare(parties or {}, next(iter(settings.values()), None))
    return "".join([*lines, *_whose_keys(jobs.values())])


def _all_differences(
    settings: Mapping[str, dict[str, Any]], clients: Mapping[str, FitConfig], aggregators: Mapping[str, AggregateConfig]
) -> list[str]:
    """Returns a sentence on each difference of a job from that of the first client."""
    if not clients:
        return []
    path, client = next(iter(clients.items()))
    result = [text for other in settings.items() for text in _differences((path, settings[path]), other)]
    known = {"parties": client.masked.parties, "unit": str(client.privacy.unit), "name": client.data.name}
    for other, job in aggregators.items():
        own = {"parties": job.parties, "unit": job.unit and str(job.unit), "name": job.name}
        # Clients may leave out the name of their data, and an aggregator without a ledger has no name and no unit.
        shared = {name for name in own if name == "parties" or None not in (own[name], known[name])}
        result += _differences(
            (path, {name: known[name] for name in shared}), (other, {name: own[name] for name in shared})
        )
    return result


def _to_compare(parties: Mapping[str, str], settings: Mapping[str, Any] | None) -> Iterator[str]:
    """Yields what parties compare by phone: words of the settings and version, and of each party's key."""
    if settings is not None:
        release = version("dapple-dp")
        digest = hashlib.sha256(json.dumps([release, settings], sort_keys=True).encode()).hexdigest()
        yield f"Words of these settings and dapple {release}, the same for all clients and the collector:\n"
        yield f"  {spoken_words('', digest)}\n"
    width = max(map(len, parties), default=0)
    yield f"Words of the keys of {len(parties)} parties, each of which reads out its own by phone:\n"
    yield from (f"  {name:{width}}  {spoken_words(name, key)}\n" for name, key in parties.items())


def _whose_keys(jobs: Iterable[FitConfig | AggregateConfig]) -> Iterator[str]:
    """Yields whose private key each place holds, or that it isn't here, as for jobs of other parties."""
    sections = [job if isinstance(job, AggregateConfig) else job.masked for job in jobs]
    for place, parties in {each.identity_uri: each.parties for each in sections if each.identity_uri}.items():
        if is_local(place) and os.access(place, os.R_OK):
            found = signing_parties(parties, place)
            yield f"identity_uri {place} holds the key of {found and found.own}.\n"
        else:
            yield f"identity_uri {place} is not here, so nobody has checked whose key it holds.\n"


def _any_job(path: str) -> FitConfig | AggregateConfig:
    """Loads a job; one with data is a client's or the collector's."""
    text = read_text(path)
    try:
        content = yaml_text.parse(text)
        if isinstance(content, Mapping) and "data" not in content and "trust" not in content:
            return validated_aggregate(content)
        job = load_config(text)
        check_job(job, "")
        return job
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _differences(one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> Iterator[str]:
    """Yields a sentence on each setting that differs: what each file has, and what to do."""
    for name in differing(one[1], other[1]):
        first, second = (_value(settings, name) for _, settings in (one, other))
        advice = next((text for start, text in _ADVICE.items() if name.startswith(start)), "agree on one value")
        if isinstance(first, list) and isinstance(second, list):
            pairs = zip(first, second, strict=False)
            place = next((index for index, (one_value, value) in enumerate(pairs) if one_value != value), None)
            if sorted(map(json.dumps, first)) == sorted(map(json.dumps, second)):
                name = f"{name} has the same in another order"
            if place is not None and len(json.dumps([first, second])) > _LONGEST_VALUE:
                name, first, second = f"{name}, number {place + 1}", first[place], second[place]
        yield f"{name}: {_text(first)} in {one[0]}, {_text(second)} in {other[0]}; {advice}."


def _value(settings: Any, name: str) -> Any:
    """A setting by its dotted name; None if it is not there."""
    for key in name.split("."):
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def _text(value: Any) -> str:
    """A value as text, cut if it is long."""
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _job(config: str, client: str) -> FitConfig:
    """Loads the job of a client or, without a name, of the collector."""
    if client:
        check_name(client, "--client")
    settings = load_config(read_text(config))
    check_stores(settings)
    check_keys(settings)
    return settings
