"""The word `party`: makes the key of a party of masked aggregation, enrolls it, and has it forget what it has sent."""

from apache_beam.io.filesystems import FileSystems

from pipelines.masked.clients_settings import check_keys
from pipelines.run.flags import check_name
from pipelines.run.folder import absolute
from pipelines.run.options import read_text
from pipelines.run.stores import check_stores
from schemas.choices import MaskScheme
from schemas.kmeans.fit_config import load_config
from schemas.masked.config import MaskedConfig
from transforms.masked.exchange_files import Exchange
from transforms.masked.party_state import PartyState
from transforms.masked.signing import signing_parties
from transforms.numerics.masked.public_keys import public_part
from transforms.privacy.keys import create_key, read_key


def new(output: str) -> str:
    """Makes a new private key, a file of mode 0600; its public part is printed, 64 hex digits."""
    check_stores({"--output": output})
    create_key(output, "--output")
    return public_part(read_key(output, "--output")).hex() + "\n"


def enroll(config: str, client: str) -> str:
    """Makes the state of a party, and with pairwise masks its secret where there is none; the folder is printed."""
    masked = _masked(config, client)
    secret = str(masked.secret_uri)
    if masked.scheme is MaskScheme.PAIRWISE and not FileSystems.exists(secret):
        create_key(secret, "masked.secret_uri")
    return PartyState.enroll(str(masked.state_uri), secret, client).folder + "\n"


def forget(config: str, client: str, exchange: str) -> str:
    """Destroys what a party has sent in the run of an exchange, or in all runs; how many they were is printed."""
    masked = _masked(config, client)
    party = PartyState.of(str(masked.state_uri), str(masked.secret_uri), client)
    runs = party.runs()
    if exchange:
        check_stores({"--exchange": exchange})
        parties = signing_parties(masked.parties, masked.identity_uri, client)
        runs = [party.of_run(Exchange(absolute(exchange), parties).plan().nonce)]
    for each in runs:
        each.end()
    return f"{len(runs)}\n"


def _masked(config: str, client: str) -> MaskedConfig:
    """The section of a job that says where the keys and the state of a party are."""
    if client:
        check_name(client, "--client")
    settings = load_config(read_text(config))
    check_stores(settings)
    check_keys(settings)
    return settings.masked
