"""The `party` subcommands: make a party's key, enroll the party, compare jobs, and delete sent answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dapple_dp.pipelines.masked.clients_settings import check_job, check_keys, differing, shared_settings
from dapple_dp.pipelines.run.flags import check_name
from dapple_dp.pipelines.run.folder import absolute
from dapple_dp.pipelines.run.options import read_text
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.choices import MaskScheme
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, load_config
from dapple_dp.schemas.masked.config import COLLECTOR, AggregateConfig, validated_aggregate
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.masked.exchange_files import Exchange
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.masked.signing import signing_parties
from dapple_dp.transforms.numerics.masked.public_keys import public_part
from dapple_dp.transforms.privacy.key_files import create_key, read_key

_LONGEST_VALUE = 60


def new(output: str) -> str:
    """Makes a new private key, a file of mode 0600; returns the public key, 64 hex digits, to print."""
    check_stores({"--output": output})
    create_key(output, "--output")
    return public_part(read_key(output, "--output")).hex() + "\n"


def enroll(config: str, client: str) -> str:
    """Creates the state of a party, and a missing secret for pairwise masks; returns the folder to print."""
    settings = _job(config, client)
    check_job(settings, client)
    signing_parties(settings.masked.parties, settings.masked.identity_uri, client or COLLECTOR)
    masked, secret = settings.masked, str(settings.masked.secret_uri)
    if masked.scheme is MaskScheme.PAIRWISE and not STORE.exists(secret):
        create_key(secret, "masked.secret_uri")
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
    """Compares the jobs of all parties before anything is sent; returns a summary to print.

    Raises:
      ConfigError: if a job belongs to no party, or jobs differ in settings that they must share.
    """
    jobs = {path: _any_job(path) for path in files}
    clients = {path: job for path, job in jobs.items() if isinstance(job, FitConfig)}
    aggregators = {path: job for path, job in jobs.items() if isinstance(job, AggregateConfig)}
    if not clients or len(jobs) < 2 or len(aggregators) > 1:
        raise ConfigError(
            f"Give the job files of all parties, one of them the aggregator's, got {len(clients)} of clients "
            f"and {len(aggregators)} of an aggregator."
        )
    first, *others = [(path, shared_settings(job)) for path, job in clients.items()]
    found = [text for other in others for text in _differences(first, other)]
    path, client = next(iter(clients.items()))
    known = {"parties": client.masked.parties, "unit": str(client.privacy.unit), "name": client.data.name}
    for other, job in aggregators.items():
        own = {"parties": job.parties, "unit": job.unit and str(job.unit), "name": job.name}
        # Clients may leave out the name of their data, and an aggregator without a ledger has no name and no unit.
        shared = {name for name in own if name == "parties" or None not in (own[name], known[name])}
        found += _differences(
            (path, {name: known[name] for name in shared}), (other, {name: own[name] for name in shared})
        )
    if found:
        raise ConfigError(f"The jobs differ in {'; '.join(dict.fromkeys(found))}. Make them equal.")
    charged = [
        f"The aggregator charges data set {job.name} in {job.ledger}.\n" for job in aggregators.values() if job.ledger
    ]
    nobody = "No ledger is charged: the aggregator's job has none.\n" if aggregators else ""
    both = " and that of the aggregator" if aggregators else ""
    return f"{len(clients)} jobs of clients and collector{both} agree.\n{''.join(charged) or nobody}"


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
    """Yields each setting that differs, with its values if they are short."""
    for name in differing(one[1], other[1]):
        values = [_value(settings, name) for _, settings in (one, other)]
        shown = [f"{value} in {path}" for value, (path, _) in zip(values, (one, other), strict=True)]
        yield f"{name} ({', '.join(shown)})" if None not in values else f"{name} ({one[0]}, {other[0]})"


def _value(settings: Any, name: str) -> str | None:
    """A setting as text; None if it is long or a section."""
    for key in name.split("."):
        settings = settings.get(key) if isinstance(settings, dict) else None
    text = json.dumps(settings)
    return None if isinstance(settings, dict) or len(text) > _LONGEST_VALUE else text


def _job(config: str, client: str) -> FitConfig:
    """Loads the job of a client or, without a name, of the collector."""
    if client:
        check_name(client, "--client")
    settings = load_config(read_text(config))
    check_stores(settings)
    check_keys(settings)
    return settings
