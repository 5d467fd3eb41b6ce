"""The word `party`: makes the key of a party of masked aggregation, and prints its public part."""

from collections.abc import Sequence

from pipelines.run.flags import Parser
from pipelines.run.stores import check_stores
from transforms.numerics.masked.signatures import public_part
from transforms.privacy.keys import create_key, read_key


def command(argv: Sequence[str]) -> str:
    """Makes a new private key, a file of mode 0600, and gives what is printed: its public part in 64 hex digits.

    Args:
      argv: words after `party`.

    Raises:
      ConfigError: if the words are others, or something lies at the place already.
    """
    parser = Parser(prog="dapple party", allow_abbrev=False, add_help=False, form="dapple party new --output KEY")
    parser.add_argument("action", choices=("new",))
    parser.add_argument("--output", required=True)
    place = parser.parse_args(list(argv)).output
    check_stores({"--output": place})
    create_key(place, "--output")
    return public_part(read_key(place, "--output")).hex() + "\n"
