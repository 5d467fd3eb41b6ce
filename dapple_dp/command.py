"""The `dapple` command, as it is installed."""


def main() -> int:
    """Runs the command of this process; returns its exit code."""
    from dapple_dp.pipelines.command import process

    return process.main()
