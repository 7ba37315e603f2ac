"""A strategy with a state folder, and nothing else."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flower_grid import model
from mabrfl.flower import RobustStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = RobustStrategy(
        str(config["defense"]),
        seed=2,
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=int(str(config["nodes"])),
        state_dir=str(config["state-dir"]),
    )
    strategy.start(grid, model(), num_rounds=int(str(config["rounds"])), timeout=float(str(config["round-timeout"])))
