"""`python -m examples.inference`: the example on a Flink of its own, which is fetched; returns 3 where that cannot be.

`python -m examples.inference FLAGS` runs it on the runner of these flags, whose workers see this machine's files.
"""

import sys
from collections.abc import Sequence

from deploy.local import downloads
from deploy.local.flink_cluster import FlinkCluster, Ports
from examples.inference import stream

MOST_SECONDS = 240.0


def main(words: Sequence[str]) -> int:
    """Runs the example."""
    if words:
        return stream.run(words, MOST_SECONDS)
    cluster = FlinkCluster(stream.OUTPUT / "flink", Ports.free(), task_managers=1)
    try:
        cluster.up()
        # Flink ends a source that starts timers only, and the timers with it, unless it is asked to wait.
        patient = f"--shutdown_sources_after_idle_ms={MOST_SECONDS * 1000:.0f}"
        return stream.run([*cluster.flags, patient], MOST_SECONDS)
    except downloads.UnavailableError as error:
        print(f"examples.inference: {error}", file=sys.stderr)
        return 3
    finally:
        cluster.down()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
