"""Nodes that answer honestly, and one that sends whatever the server's configuration names."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flower_grid import honest
from flower_replies import MALFORMED, UNPACKABLE

app = ClientApp()

BAD = 3


@app.train()
def train(message: Message, context: Context) -> Message:
    partition = int(str(context.node_config["partition-id"]))
    reply = honest(partition)(message)
    name = str(message.content.config_records["config"]["malformed"])
    if partition == BAD and name == "26 cannot be unpacked":
        return UNPACKABLE(message, reply)
    if partition != BAD or name not in MALFORMED:
        return reply
    return MALFORMED[name][0](message, reply)
