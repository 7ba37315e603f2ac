"""A node whose replies depend on its number and the round alone."""

import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flower_grid import honest, round_in

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    config, partition = context.run_config, int(str(context.node_config["partition-id"]))
    if config["stuck"] == f"{partition} in round {round_in(message)}":
        Path(f"{config['state-dir']}.stuck").touch()
        time.sleep(3600)
    while 0 < int(str(config["hold"])) <= round_in(message) and not Path(f"{config['state-dir']}.go").exists():
        time.sleep(0.1)
    return honest(partition)(message)
