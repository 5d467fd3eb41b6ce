"""The server: Dapple's aggregator. It adds up sealed messages under masks, and draws the noise.

It has a key for noise and no secret. So it never sees a plain sum or a release: taking masks off is the clients' role.
"""

import os
from collections.abc import Iterable, Mapping

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from dapple_flower.exchange import OF_COLLECTOR, OF_SERVER, RefusedError, Role, of_client
from dapple_flower.messages import files_of, packed, summary_of

app = ServerApp()


class Federation:
    """Nodes of a run by the names of their parties.

    Args:
      grid: Flower's.
      seconds: that replies may take.
    """

    def __init__(self, grid: Grid, seconds: float) -> None:
        self._grid, self._seconds = grid, seconds
        self.nodes: dict[str, int] = {}
        self.collector = ""

    def meet(self, number: int) -> None:
        """Asks the nodes who they are, until as many as wanted have answered.

        Raises:
          RefusedError: if two have one name, or not exactly one is the collector.
        """
        nodes: list[int] = []
        while len(nodes) < number:
            nodes = list(self._grid.get_node_ids())
        met = [(summary_of(each.content), each) for each in self._ask("query.hello", nodes, {})]
        self.nodes = {str(summary["name"]): each.metadata.src_node_id for summary, each in met}
        collectors = [str(summary["name"]) for summary, _ in met if summary["collects"]]
        if len(self.nodes) != len(nodes) or len(collectors) != 1:
            raise RefusedError(
                f"nodes must have a name each and one collector, got {sorted(self.nodes)}, {collectors}."
            )
        (self.collector,) = collectors

    def collect(self, files: Mapping[str, bytes]) -> Message:
        """Has the collector open the run or the next round; raises RefusedError if it does not."""
        return self.all_of("query.collect", files, [self.collector])[self.collector]

    def all_of(self, kind: str, files: Mapping[str, bytes], names: Iterable[str]) -> dict[str, Message]:
        """Replies of all that are named; raises RefusedError if one is missing."""
        wanted = list(names)
        found = self.some_of(kind, files, wanted)
        if missing := sorted(set(wanted) - set(found)):
            raise RefusedError(f"{kind} must be answered by all, got nothing of {', '.join(missing)}.")
        return found

    def some_of(self, kind: str, files: Mapping[str, bytes], names: Iterable[str]) -> dict[str, Message]:
        """Replies of those that answer."""
        known = {node: name for name, node in self.nodes.items()}
        replies = self._ask(kind, [self.nodes[name] for name in names], files)
        return {known[each.metadata.src_node_id]: each for each in replies}

    def _ask(self, kind: str, nodes: Iterable[int], files: Mapping[str, bytes]) -> list[Message]:
        asked = [Message(packed(files), dst_node_id=node, message_type=kind) for node in nodes]
        replies = self._grid.send_and_receive(asked, timeout=self._seconds)
        return [each for each in replies if each.has_content()]


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds."""
    config = context.run_config
    own = Role(str(config.get("folder") or os.path.join(os.environ["DAPPLE_FEDERATION"], "aggregator")))
    federation = Federation(grid, float(config.get("seconds", 600)))
    federation.meet(int(config.get("clients", 3)))
    state = opened(own, federation)
    own.run("aggregate", "aggregate.yaml")
    while state["round"] < state["rounds"]:
        for name, reply in federation.some_of("train.upload", own.files(OF_SERVER), federation.nodes).items():
            own.take(files_of(reply.content), of_client(name))
        own.run("aggregate", "aggregate.yaml")
        state = opened(own, federation)
    told = federation.some_of("query.finish", own.files(OF_SERVER), federation.nodes)
    for name, reply in sorted(told.items()):
        print(
            f"{name}: epsilon {summary_of(reply.content)['epsilon']:.4g} spent, centers in its own folder", flush=True
        )


def opened(own: Role, federation: Federation) -> dict[str, int]:
    """Has the collector take the last sum and open the next round; says which round it is, of how many."""
    reply = federation.collect(own.files(OF_SERVER))
    own.take(files_of(reply.content), OF_COLLECTOR)
    return {name: int(value) for name, value in summary_of(reply.content).items()}
