"""`python -m deploy.local flink-up | flink-down | prism-up`: runners of this machine beside the built-in one."""

import sys

from deploy.local import downloads
from deploy.local.flink_cluster import FlinkCluster

FLINK_FOLDER = downloads.CACHE / "flink"


def main(command: str) -> int:
    """Runs a command; returns 0, or 3 if something it needs cannot be had."""
    try:
        if command == "flink-down":
            FlinkCluster(FLINK_FOLDER).down()
        elif command == "flink-up":
            print("\n".join(_flink_up()))
        else:
            print(f"--runner=PrismRunner\n--prism_location={downloads.prism_binary()}\n--no_save_main_session")
    except downloads.UnavailableError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 3
    return 0


def _flink_up() -> tuple[str, ...]:
    """Starts the cluster and returns the flags of jobs that are to run there."""
    cluster = FlinkCluster(FLINK_FOLDER)
    cluster.up()
    print(f"flink-up: web page http://127.0.0.1:{cluster.ports.rest}, logs {cluster.folder / 'log'}", file=sys.stderr)
    return cluster.flags


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
