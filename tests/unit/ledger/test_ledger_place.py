"""Places of a ledger: files and servers, and URLs that are refused without a word of what they hold."""

import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.ledger_place import is_on_server, ledger_place

SECRET = "planted0451"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("ledger.db", None),
        ("/data/postgresql", None),
        ("postgresql", None),
        ("file:///x", None),
        ("postgresql://me@h:5/d", "postgresql://me@h:5/d"),
        ("postgres://h/d?sslmode=require", "postgresql://h/d?sslmode=require"),
        ("PostgreSQL://h/d", "postgresql://h/d"),
    ],
)
def test_a_place_is_a_path_or_the_address_of_a_server(given, place):
    assert is_on_server(given) is (place is not None)
    assert ledger_place(given) == (place or given)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        (f"postgresql://me:{SECRET}@h/d", "without a password"),
        (f"postgresql://h/d?password={SECRET}", "without a password"),
        (f"postgresql://h/d?sslpassword={SECRET}", "without a password"),
        (f"postgresql://me:{SECRET}@h/d?sslpassword={SECRET}", "without a password"),
        ("postgresql://me:@h/d", "without a password"),
        ("postgresql://h/d?password=", "without a password"),
        (f"postgresql://me:1/{SECRET}@h/d", "like postgresql"),
        (f"postgresql://h/d?x={SECRET}@h", "like postgresql"),
        (f"postgresql://h/d#{SECRET}", "like postgresql"),
        ("postgresql://h", "like postgresql"),
        ("postgresql://h/", "like postgresql"),
        (f"postgresql://me:[{SECRET}@h/d", "a path or a postgresql:// URL"),
    ],
)
def test_what_may_hold_a_password_is_refused_and_not_repeated(url, rule):
    with pytest.raises(ConfigError, match=rule) as refused:
        ledger_place(url)
    assert SECRET not in str(refused.value)
