"""Many rounds of a federation on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mabrfl import catalog
from mabrfl.attacks import Attack, as_attack
from mabrfl.config import ResolvedConfig, RunConfig, resolve
from mabrfl.defense import Defense
from mabrfl.defense_state import restore
from mabrfl.errors import ConfigError, StateError
from mabrfl.global_model import GlobalModel
from mabrfl.protocols import Stateful
from mabrfl.recording import RoundRecord
from mabrfl.simulation.client_data import client_data
from mabrfl.simulation.data import Dataset
from mabrfl.simulation.federation import Federation, choose_attackers, make_shards, sample_of
from mabrfl.simulation.oracle import AttackersPerRound
from mabrfl.simulation.round import run_round
from mabrfl.simulation.training import Engine, Shard, TrainingOptions, initialise

if TYPE_CHECKING:
    from torch import nn


class Simulation:
    """A federation, its defense and its attack, ready to run. Use it as a context manager.

    It takes objects, so that any model, data set, defense and attack works; :func:`build_simulation` makes one from
    a configuration and the catalogue's names.

    Parameters
    ----------
    dataset
        Training and test data.
    model
        Makes the network to train, with its initial weights: a class or a function without arguments.
    partition
        For each client, the indices of its training examples.
    defense
        Selector, rule and beliefs at the server.
    root
        The indices of the server's own training examples, for a defense that compares with an update of its own.
    attack
        An :class:`~mabrfl.attacks.Attack` or a function ``view -> rows``; None for no attack.
    attackers
        The clients that the adversary controls, for the whole run.
    attackers_per_round
        How many of them take part in each round; 0: as many as are selected.
    training
        How a client trains.
    rounds
        How many rounds :meth:`run` runs.
    seed
        Root of all randomness outside the defense, which has its own.
    workers, device
        Number of worker processes, and the device to train on; the number of workers does not change the result.
    config
        The configuration this was built from, if any, for the record.
    """

    def __init__(
        self,
        *,
        dataset: Dataset,
        model: Callable[[], nn.Module],
        partition: Sequence[NDArray[np.int64]],
        defense: Defense,
        root: NDArray[np.int64] | None = None,
        attack: Attack | Callable[..., Any] | None = None,
        attackers: frozenset[int] | set[int] = frozenset(),
        attackers_per_round: int = 0,
        training: TrainingOptions | None = None,
        rounds: int = 30,
        seed: int = 0,
        workers: int = 1,
        device: str = "cpu",
        config: ResolvedConfig | None = None,
    ) -> None:
        strangers = sorted(set(attackers) - set(range(len(partition))))
        if strangers:
            raise ConfigError(f"attackers must be clients 0 to {len(partition) - 1}; got {strangers[:5]}")
        self.dataset = dataset
        self.defense = defense
        self.attack = None if attack is None else as_attack(attack)
        self.attackers = frozenset(attackers) if attack is not None else frozenset()
        self.rounds = rounds
        self.config = config
        shards = make_shards(dataset, partition, attack=self.attack, attackers=self.attackers, seed=seed)
        shards += [] if root is None else [Shard(indices=root)]
        goal = None
        if self.attack is not None:
            goal = self.attack.goal(dataset.test_inputs, dataset.test_labels, num_classes=dataset.num_classes)
        self._engine = Engine(model, dataset, shards, training, seed=seed, workers=workers, device=device, goal=goal)
        sizes = [len(indices) for indices in partition]
        self.federation = Federation(
            self._engine,
            attackers=self.attackers,
            seed=seed,
            num_examples=sizes,
            has_root=root is not None,
            own_examples=sample_of(partition, self.attackers, seed=seed),
        )
        if attackers_per_round and attack is not None:
            federation = self.federation
            defense.selector = AttackersPerRound(defense.selector, lambda: federation.attacker_ids, attackers_per_round)
        self.model: GlobalModel = self.federation.initial_model()
        self.round = 0

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.federation.client_ids)

    def run(self) -> Iterator[RoundRecord]:
        """Run the remaining rounds and yield each round's record."""
        while self.round < self.rounds:
            self.model, record = run_round(self.round + 1, self.model, self.federation, self.defense, self.attack)
            self.round += 1
            yield record

    def module_state(self) -> dict[str, NDArray[Any]]:
        """Return the global model as the ``state_dict`` of its module, in arrays by name."""
        return self._engine.module_state(self.model.weights, self.model.buffers)

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next round depends on, as plain arrays, numbers and strings."""
        model = self.model
        return {
            "round": self.round,
            "weights": model.weights.copy(),
            "buffers": model.buffers.copy(),
            "last_step": None if model.last_step is None else model.last_step.copy(),
            "defense": self.defense.state_dict(),
            "attack": self.attack.state_dict() if isinstance(self.attack, Stateful) else {},
            "identities": self.federation.identities.state_dict(),
            "engine": self._engine.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the round in which :meth:`state_dict` was called, with the same bits.

        Raises
        ------
        StateError
            If the state belongs to another model or defense, or is malformed.
        """
        try:
            number, model = _restored(state, self.model)
            attack = self.attack if isinstance(self.attack, Stateful) else None
            # States of earlier versions have no identities: no client could change its id then.
            identities = state.get("identities", {"renewals": []})
            restore(
                [
                    (self.defense, state["defense"]),
                    (attack, state["attack"]),
                    (self.federation.identities, identities),
                    (self._engine, state["engine"]),
                ]
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"the state of a simulation is malformed: {error}") from error
        self.round, self.model = number, model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        self._engine.close()


def build_simulation(config: RunConfig) -> Simulation:
    """Return the simulation of a run. Resolve the configuration, if needed, and build the parts by their names."""
    run = resolve(config)
    dataset = catalog.build_dataset(run.dataset)
    shape = dataset.train_inputs.shape[1:]

    def model() -> nn.Module:
        network = catalog.build_model(run.model, shape, dataset.num_classes)
        return initialise(network, run.training.init, seed=run.seed)

    attackers = choose_attackers(run.clients, run.num_attackers, rule=run.attackers_chosen, seed=run.seed)
    dataset, partition, root = client_data(run, dataset, attackers)
    return Simulation(
        dataset=dataset,
        model=model,
        partition=partition,
        defense=defense_of(run),
        root=root,
        attack=catalog.build_attack(
            run.attack,
            run.attack_options,
            num_malicious=run.num_attackers,
            num_clients=run.clients,
            seed=run.seed,
        ),
        attackers=attackers,
        attackers_per_round=run.attackers_per_round,
        training=training_of(run),
        rounds=run.rounds,
        seed=run.seed,
        workers=run.workers,
        device=run.device,
        config=run,
    )


def _restored(state: Mapping[str, Any], like: GlobalModel) -> tuple[int, GlobalModel]:
    """Return the round and the model of a saved state; refuse the state of another model."""
    number = state["round"]
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise StateError(f"the state's round must be a whole number from 0; got {number!r}")
    arrays = {"weights": like.weights, "buffers": like.buffers}
    if state["last_step"] is not None:
        arrays["last_step"] = like.weights
    for name, ours in arrays.items():
        theirs = np.asarray(state[name])
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            raise StateError(
                f"the state's {name} are {theirs.dtype}{theirs.shape}, this model's are {ours.dtype}{ours.shape}"
            )
        if not np.all(np.isfinite(theirs)):
            raise StateError(f"the state's {name} are not all finite")
    copies = {name: np.array(state[name]) for name in arrays}
    return number, GlobalModel(**copies)


def defense_of(run: ResolvedConfig) -> Defense:
    """Return the defense of a run."""
    method = catalog.entry("defenses", run.defense)
    own_selector = run.selector == method.selector and not run.selector_options
    return catalog.build_defense(
        run.defense,
        None if own_selector else run.selector,
        before=run.before,
        before_options=run.before_options,
        defense_options=run.defense_options,
        selector_options=run.selector_options,
        preset=run.preset if method.presets else None,
        num_malicious=run.assumed_malicious,
        num_clients=run.clients,
        seed=run.seed,
    )


def training_of(run: ResolvedConfig) -> TrainingOptions:
    """Return the training options of a run."""
    return TrainingOptions(**run.training.model_dump(exclude={"init"}))
