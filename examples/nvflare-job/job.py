"""Eight sites in NVFlare's simulator, of which one sends NaN and two send the opposite of their update.

pip install 'mabrfl[nvflare]' scikit-learn
python job.py                       # MAB-RFL
python job.py --workflow plain      # NVFlare's own FedAvg, for comparison
"""

import argparse
from pathlib import Path

import numpy as np
from client import CLASSES, FEATURES, accuracy
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.app_common.shareablegenerators.full_model_shareable_generator import FullModelShareableGenerator
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

from mabrfl.nvflare import RobustAggregator, RobustFedAvg

HERE = Path(__file__).parent


def make_job(workflow: str, sites: int, rounds: int, liars: dict[str, str], defense: str) -> FedJob:
    """Return the job: a workflow and the model at the server, a training script at every site."""
    job = FedJob(name="robust", min_clients=sites)
    job.set_app_packages(["mabrfl"])  # installed at the server, so not part of the job
    persistor = job.to_server(NPModelPersistor(model=np.zeros((FEATURES, CLASSES)).tolist()), id="persistor")
    aggregator = RobustAggregator(defense, num_clients=sites)
    settings = {"num_clients": sites, "num_rounds": rounds, "persistor_id": persistor}
    if workflow == "plain":
        job.to_server(FedAvg(**settings))
    elif workflow == "aggregator":  # a recipe's argument "aggregator" ends here, too
        job.to_server(FedAvg(**settings, aggregator=aggregator))
    elif workflow == "scatter":
        job.to_server(FullModelShareableGenerator(), id="shareable_generator")
        job.to_server(aggregator, id="aggregator")
        job.to_server(ScatterAndGather(min_clients=sites, num_rounds=rounds, persistor_id=persistor))
    else:
        job.to_server(RobustFedAvg(**settings, aggregator=aggregator))
    for k in range(1, sites + 1):
        lie = f" --lie {liars[name]}" if (name := f"site-{k}") in liars else ""
        runner = ScriptRunner(
            script=str(HERE / "client.py"),
            script_args=f"--sites {sites}{lie}",
            framework=FrameworkType.NUMPY,
            server_expected_format=ExchangeFormat.NUMPY,
            params_transfer_type=TransferType.DIFF if workflow == "aggregator" else TransferType.FULL,
        )
        job.to(runner, name)
    return job


def main() -> None:
    """Run the job and print the accuracy of the last model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--defense", default="mab-rfl", help="a name of mabrfl list defenses")
    parser.add_argument("--workflow", choices=["robust", "aggregator", "scatter", "plain"], default="robust")
    parser.add_argument("--honest", action="store_true", help="no site lies")
    parser.add_argument("--crash", action="store_true", help="the last site fails in every round, too")
    parser.add_argument("--workspace", default="nvflare-workspace")
    arguments = parser.parse_args()
    liars = {} if arguments.honest else {"site-2": "nan", "site-3": "flip", "site-5": "flip"}
    if arguments.crash:
        liars[f"site-{arguments.sites}"] = "crash"
    job = make_job(arguments.workflow, arguments.sites, arguments.rounds, liars, arguments.defense)
    job.simulator_run(arguments.workspace)
    run = Path(arguments.workspace) / "server" / "simulate_job"
    print(f"accuracy {accuracy(np.load(next(run.rglob('server.npy')))):.3f}")
    if arguments.workflow != "plain":
        print(f"every verdict: mabrfl audit show {run}")


if __name__ == "__main__":
    main()
