"""The `dapple` command, as it is installed: it is Dapple's packages that run, whatever else is on the path."""

import sys

from dapple_dp import own_packages


def main() -> int:
    """Runs the command of this process; returns its exit code, 2 if a package of Dapple is another's."""
    try:
        own_packages.claim()
    except own_packages.ForeignPackageError as error:
        sys.stderr.write(f"dapple: {error}\n")
        return 2
    own_packages.lend_to_children()
    from pipelines.command import process

    return process.main()
