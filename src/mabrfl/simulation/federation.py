"""The clients of a simulated federation: their data, the attackers among them, and their updates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks import Attack, AttackerView, Secrets, craft
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError
from mabrfl.global_model import GlobalModel
from mabrfl.rng import ClientId, digest, generator, uniforms
from mabrfl.simulation.client_ids import Identities
from mabrfl.simulation.data import Dataset
from mabrfl.simulation.training import Engine, Evaluation, Shard
from mabrfl.updates import Floats, Outcome, Updates, Verdict, canonical

MEASURED = 500
"""Examples on which the adversary measures a model."""


@dataclass(frozen=True)
class RoundTraining:
    """Local training of one round: rows of the honest clients, of onlookers, and of attackers that train.

    Onlookers are honest clients that were not selected and train only because the attack observes them. The root
    update is the server's own, if its defense needs one.
    """

    round: int
    honest: tuple[int, ...]
    onlookers: tuple[int, ...]
    attackers: tuple[int, ...]
    updates: Floats
    buffers: dict[ClientId, Floats]
    global_weights: Floats | None = None
    root_update: Floats | None = None

    @property
    def honest_updates(self) -> Floats:
        """``(b, d)`` updates of the honest clients."""
        return self.updates[: len(self.honest)]

    @property
    def attackers_updates(self) -> Floats | None:
        """``(a, d)`` updates of the attackers' own training; None if they did not train."""
        rows = self.updates[len(self.observed) :]
        return rows if len(rows) == len(self.attackers) else None

    @property
    def observed(self) -> tuple[int, ...]:
        """The clients whose updates an attack with enough knowledge sees: the ids of the first rows."""
        return self.honest + self.onlookers


@dataclass(frozen=True)
class Sent:
    """The updates that reach the server, and the attack's events."""

    updates: Updates
    events: tuple[str, ...] = ()


class Federation:
    """K clients with fixed data, some of them under one adversary's control for the whole run.

    Parameters
    ----------
    engine
        Trains clients and evaluates models; client k is its k-th shard.
    attackers
        The clients that the adversary controls, by number. Known here and to evaluation alone.
    seed
        Root of the attack's random streams.
    num_examples
        Training examples of each client.
    has_root
        Whether the engine has one more shard: the server's root data.
    own_examples
        Training examples of the attackers on which they measure models.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        attackers: frozenset[int],
        seed: int,
        num_examples: Sequence[int],
        has_root: bool = False,
        own_examples: NDArray[np.int64] | None = None,
    ) -> None:
        self.engine = engine
        self.attackers: frozenset[ClientId] = frozenset(attackers)
        self.seed = seed
        self.num_examples = tuple(num_examples)
        self.has_root = has_root
        self.own_examples = own_examples
        self.identities = Identities(len(self.num_examples))

    @property
    def client_ids(self) -> tuple[int, ...]:
        """The ids of all clients, as the server knows them."""
        return self.identities.ids

    @property
    def attacker_ids(self) -> frozenset[ClientId]:
        """The attackers, under their present ids."""
        return frozenset(self.identities.of(self.attackers))

    def initial_model(self) -> GlobalModel:
        """Return the model before the first round."""
        return GlobalModel(self.engine.initial_weights.copy(), self.engine.initial_buffers.copy())

    def train(
        self, chosen: Sequence[ClientId], model: GlobalModel, attack: Attack | None, *, round_number: int
    ) -> RoundTraining:
        """Stage 2: the chosen clients train locally; attackers only if their attack needs it."""
        clients = [self.identities.client(public_id) for public_id in chosen]
        honest = tuple(client for client in clients if client not in self.attackers)
        attackers = tuple(client for client in clients if client in self.attackers)
        onlookers: tuple[int, ...] = ()
        if attack is not None and attackers and attack.observes == "all":
            onlookers = tuple(sorted(set(range(len(self.num_examples))) - self.attackers - set(honest)))
        trainers = honest + onlookers + (attackers if attack is not None and attack.trains_at(round_number) else ())
        poisoned = attackers if attack is not None and attack.poisoned_at(round_number) else ()
        root_update = self._train_root(model, round_number)
        result = self.engine.train(
            trainers, model.weights, model.buffers, round=round_number, poisoned=poisoned, transient=onlookers
        )
        buffers: dict[ClientId, Floats] = {}
        if result.buffers is not None:
            buffers.update(zip(trainers, result.buffers, strict=True))
        return RoundTraining(
            round_number, honest, onlookers, attackers, result.updates, buffers, model.weights, root_update
        )

    def _train_root(self, model: GlobalModel, round_number: int) -> Floats | None:
        """Return the server's own update, if it has root data: the shard behind those of the clients."""
        if not self.has_root:
            return None
        root = (len(self.num_examples),)
        result = self.engine.train(root, model.weights, model.buffers, round=round_number, poisoned=(), transient=root)
        # The engine's memory is overwritten by the next training; a server that diverged has no update to compare with.
        update: Floats = result.updates[0].copy()
        return update if np.all(np.isfinite(update)) else np.zeros_like(update)

    def corrupt(self, trained: RoundTraining, model: GlobalModel, attack: Attack | None, defense: Defense) -> Sent:
        """Stage 3: the adversary replaces what its clients send."""
        if attack is None or not trained.attackers:
            return Sent(self._updates(trained, trained.honest, trained.honest_updates))
        view = AttackerView(
            round=trained.round,
            attackers=trained.attackers,
            num_clients=len(self.client_ids),
            num_malicious=len(self.attackers),
            knowledge=attack.knowledge,
            global_weights=model.weights,
            last_step=model.last_step,
            layout=self.engine.layout,
            own_updates=trained.attackers_updates,
            seed=digest(self.seed, "adversary"),  # the adversary cannot know the server's streams
            controlled=tuple(canonical(self.attackers)),
            own_accuracy=self._measurement(model),
            secrets=self._secrets(trained, attack, defense),
        )
        rows = craft(attack, view)
        if rows is None:
            return Sent(self._updates(trained, trained.honest, trained.honest_updates), ("attack-inactive",))
        return Sent(self._attacked(trained, rows, attack))

    def _measurement(self, model: GlobalModel) -> Callable[[Floats], float] | None:
        """Return how the attackers measure a model: on a sample of their own training examples."""
        if self.own_examples is None or not len(self.own_examples):
            return None
        examples = self.own_examples
        return lambda weights: self.engine.accuracy_on(examples, weights, model.buffers)

    def _attacked(self, trained: RoundTraining, rows: Floats, attack: Attack) -> Updates:
        """Return the updates of all: honest ones with true counts, and these rows with the attackers' claims."""
        claims = attack.claims([self.num_examples[client] for client in trained.attackers])
        matrix = np.concatenate([trained.honest_updates, rows])
        return self._updates(trained, trained.honest + trained.attackers, matrix, claims)

    def _secrets(self, trained: RoundTraining, attack: Attack, defense: Defense) -> Secrets:
        def rehearse(rows: Floats) -> Outcome:
            updates = self._attacked(trained, rows, attack)
            outcome = copy.deepcopy(defense).aggregate(updates, round=trained.round)
            owner = self.identities.client
            verdicts: dict[ClientId, Verdict] = {owner(each): one for each, one in outcome.verdicts.items()}
            return replace(outcome, verdicts=verdicts)

        observed = trained.observed
        return Secrets(trained.updates[: len(observed)], observed, defense.name, rehearse)

    def _updates(
        self, trained: RoundTraining, clients: Sequence[int], matrix: Floats, claims: Sequence[float] = ()
    ) -> Updates:
        """Return the updates of these clients; the claims are for the last ones, the others have their true counts."""
        truthful = clients[: len(clients) - len(claims)]
        counts = [*(self.num_examples[client] for client in truthful), *claims]
        return Updates(
            self.identities.of(clients),
            matrix,
            counts,
            self.engine.dimension,
            self.engine.layout,
            trained.global_weights,
            trained.root_update,
        )

    def move(self, model: GlobalModel, trained: RoundTraining, outcome: Outcome) -> GlobalModel:
        """Move the model by the outcome's step; buffers are merged over the accepted clients."""
        clients = {public_id: self.identities.client(public_id) for public_id in outcome.accepted}
        own = trained.buffers
        return model.move(outcome, {each: own[client] for each, client in clients.items() if client in own})

    def renew_identities(self, outcome: Outcome, attack: Attack | None) -> tuple[str, ...]:
        """Tell the attack which of its clients were rejected; those it names get new ids from the next round on.

        Return the events for the record.
        """
        rejected = [self.identities.client(each) for each, verdict in outcome.verdicts.items() if not verdict.accepted]
        caught = tuple(client for client in rejected if client in self.attackers)
        if attack is None or not caught:
            return ()
        leaving = attack.new_identities(caught, outcome.round)
        strangers = set(leaving) - self.attackers
        if strangers:
            raise ConfigError(f"an attack can only rename its own clients; got {sorted(map(str, strangers))[:5]}")
        for client in canonical(set(leaving)):
            self.identities.renew(client)
        return (f"new-identities: {len(set(leaving))}",) if leaving else ()

    def evaluate(self, model: GlobalModel) -> Evaluation:
        """Stage 7: the model's accuracy and loss on the test set."""
        return self.engine.evaluate(model.weights, model.buffers)


def choose_attackers(num_clients: int, num_attackers: int, *, rule: str = "random", seed: int = 0) -> frozenset[int]:
    """Choose the attackers, for the whole run.

    Parameters
    ----------
    num_clients, num_attackers
        K and f.
    rule
        ``"random"`` by seed, or the ``"last"`` f clients, as in the released code.
    seed
        Root of the random stream.
    """
    if rule == "last":
        return frozenset(range(num_clients - num_attackers, num_clients))
    if rule != "random":
        raise ConfigError(f"attackers must be chosen 'random' or 'last'; got {rule!r}")
    order = np.argsort(uniforms(seed, "attackers", 0, range(num_clients)), kind="stable")
    return frozenset(int(client) for client in order[:num_attackers])


def sample_of(partition: Sequence[NDArray[np.int64]], clients: Iterable[int], *, seed: int) -> NDArray[np.int64]:
    """Return up to 500 training examples of these clients, drawn by seed: enough to measure an accuracy."""
    owned = [partition[client] for client in sorted(clients)]
    together = np.unique(np.concatenate(owned)) if owned else np.zeros(0, dtype=np.int64)
    return np.sort(generator(seed, "measure").permutation(together)[:MEASURED])


def make_shards(
    dataset: Dataset,
    partition: Sequence[NDArray[np.int64]],
    *,
    attack: Attack | None,
    attackers: frozenset[int],
    seed: int,
) -> list[Shard]:
    """Give each client its data, and each attacker the poisoned form of its own if the attack poisons data."""
    shards = []
    controlled = canonical(attackers)
    if attack is not None and attack.poisons and controlled:
        together = np.unique(np.concatenate([partition[int(client)] for client in controlled]))
        attack.survey(dataset.train_inputs[together], dataset.train_labels[together], num_classes=dataset.num_classes)
    for client, indices in enumerate(partition):
        poisoned: dict[str, Any] = {}
        if attack is not None and attack.poisons and client in attackers:
            inputs, labels = attack.poisoner(controlled.index(client)).poison(
                dataset.train_inputs[indices],
                dataset.train_labels[indices],
                num_classes=dataset.num_classes,
                rng=generator(seed, "poison", client),
            )
            poisoned = {"poisoned_inputs": inputs, "poisoned_labels": labels, "constraint": attack.constraint}
        shards.append(Shard(indices=indices, **poisoned))
    return shards
