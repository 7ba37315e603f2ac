"""A node whose replies depend on its number and the round alone."""

import time

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flower_grid import honest

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    time.sleep(float(str(context.run_config["sleep"])))
    return honest(int(str(context.node_config["partition-id"])))(message)
