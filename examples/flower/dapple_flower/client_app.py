"""A client: it uploads masked statistics of its rows, and takes the masks off the sums for itself.

The secret, the rows and the releases stay in its folder. What it sends is its sealed message of a round and, if it is
the collector, the plan and the broadcasts' digests.
"""

import os
import pathlib

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dapple_flower.exchange import OF_COLLECTOR, OF_SERVER, Role, of_client
from dapple_flower.messages import files_of, packed

app = ClientApp()


def role(context: Context) -> Role:
    """The client of this node: the folder in `--node-config`, or in a simulation the one of its number."""
    folder = context.node_config.get("folder")
    if folder is None:
        clients = sorted(pathlib.Path(os.environ["DAPPLE_FEDERATION"], "clients").iterdir())
        folder = clients[int(context.node_config["partition-id"])]
    return Role(str(folder))


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Says who it is."""
    own = role(context)
    return Message(packed({}, {"name": own.name, "collects": own.collects}), reply_to=message)


@app.query("collect")
def collect(message: Message, context: Context) -> Message:
    """Opens the run, or takes the last sum and opens the next round; the collector only."""
    own = role(context)
    own.take(files_of(message.content), OF_SERVER)
    done = own.unmask("collector.yaml")
    summary = {"round": int(done["round"]), "rounds": int(done["rounds"])}
    return Message(packed(own.files(OF_COLLECTOR), summary), reply_to=message)


@app.train("upload")
def upload(message: Message, context: Context) -> Message:
    """Masks, seals and sends the statistics of the open round."""
    own = role(context)
    own.take(files_of(message.content), OF_SERVER)
    own.unmask()
    own.upload()
    return Message(packed(own.files(of_client(own.name))), reply_to=message)


@app.query("finish")
def finish(message: Message, context: Context) -> Message:
    """Takes the mask off the last sum, and writes the result to `released/result`."""
    own = role(context)
    own.take(files_of(message.content), OF_SERVER)
    done = own.unmask()
    return Message(packed({}, {"epsilon": float(done["epsilon"]), "delta": float(done["delta"])}), reply_to=message)
