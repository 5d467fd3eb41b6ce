"""Location of a ledger: a file on a local disk, or a database on a PostgreSQL server."""

import urllib.parse

from dapple_dp.schemas.errors import ConfigError

_SERVERS = ("postgresql", "postgres")
_SECRET = ("password", "sslpassword")


def is_on_server(ledger: str) -> bool:
    """Returns whether a ledger is in a database server, which several machines can share."""
    return ledger.partition("://")[0].lower() in _SERVERS and "://" in ledger


def ledger_place(ledger: str) -> str:
    """Validates the location of a ledger and returns it; messages don't repeat it, since it may hold a password.

    Args:
      ledger: a path, or `postgresql://USER@HOST:PORT/DATABASE` with options of libpq.

    Raises:
      ConfigError: if it is a URL with a password, or one that can't be parsed without doubt.
    """
    if not is_on_server(ledger):
        return ledger
    address = f"postgresql://{ledger.partition('://')[2]}"
    try:
        parts = urllib.parse.urlsplit(address)
        options = {name for name, _ in urllib.parse.parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:
        raise ConfigError("ledger must be a path or a postgresql:// URL, got an invalid URL; correct it.") from None
    if parts.fragment or "@" in f"{parts.path}{parts.query}" or len(parts.path) < 2:
        raise ConfigError(
            "ledger must be like postgresql://USER@HOST:PORT/DATABASE, got another URL; escape special characters "
            "in it, such as # as %23 and @ as %40."
        )
    if parts.password is not None or options & set(_SECRET):
        raise ConfigError(
            "ledger must be a URL without a password, got one with a password; put that into ~/.pgpass, mode 0600, "
            "which the PostgreSQL library reads (PGPASSFILE names another file)."
        )
    return address
