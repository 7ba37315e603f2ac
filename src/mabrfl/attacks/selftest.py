"""Does an attack do harm? A small federation without a defense measures it in a second.

Public implementations of attacks are often weaker than their papers, and a defense looks good against an attack
that does nothing. So every attack here is measured against plain averaging. Measure yours too:

>>> from mabrfl.attacks import SignFlip
>>> attack_strength(SignFlip(), rounds=8).verdict
'hurts'

NumPy and scikit-learn only: the handwritten digits that come with scikit-learn, a network with one hidden
layer, clients with a dominant label each, local stochastic gradient descent, averaging.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from mabrfl.attacks._network import CLASSES, LAYOUT, Labels, initial_weights, predicted, train
from mabrfl.attacks.base import Attack, FunctionAttack, as_attack, craft
from mabrfl.attacks.view import AttackerView, Secrets
from mabrfl.checks import check_positive, check_whole
from mabrfl.errors import ConfigError, extra_needed
from mabrfl.rng import digest, generator
from mabrfl.updates import Floats, Outcome, Verdict

with extra_needed("the self-test of attacks"):
    from sklearn.datasets import load_digits

TEST_EXAMPLES, CLIENT_EXAMPLES = 597, 64


@dataclass(frozen=True)
class Strength:
    """The effect of an attack on plain averaging: test accuracies in percent after the last round.

    Attributes
    ----------
    clean_accuracy
        All clients are honest.
    absent_accuracy
        The attackers send nothing: the cost of losing their data.
    attacked_accuracy
        The attackers attack.
    margin
        How many points the attack must cost to count as harm.
    inactive_rounds
        Share of the rounds in which the attack sent nothing.
    success, clean_success
        Percent of the examples of the attack's goal (the marked pictures of a backdoor) that the attacked model,
        and the model of honest clients, classify as the attack wants; None if it has no goal.
    """

    clean_accuracy: float
    absent_accuracy: float
    attacked_accuracy: float
    margin: float
    inactive_rounds: float
    success: float | None = None
    clean_success: float | None = None

    @property
    def drop(self) -> float:
        """Points below the worse of the two accuracies without attack; negative if the attack helps."""
        return min(self.clean_accuracy, self.absent_accuracy) - self.attacked_accuracy

    @property
    def verdict(self) -> Literal["hurts", "inactive"]:
        """``"hurts"`` if the drop, or the rise of the success rate, reaches the margin, else ``"inactive"``."""
        gain = (self.success or 0.0) - (self.clean_success or 0.0)
        return "hurts" if max(self.drop, gain) >= self.margin else "inactive"

    def __str__(self) -> str:
        goal = (
            f", attack success {self.success:.1f} % ({self.clean_success:.1f} % without it)"
            if self.success is not None
            else ""
        )
        return (
            f"{self.verdict}: accuracy {self.clean_accuracy:.1f} % if all are honest, "
            f"{self.absent_accuracy:.1f} % without the attackers, {self.attacked_accuracy:.1f} % with them{goal}; "
            f"margin {self.margin:g}, attack inactive in {self.inactive_rounds:.0%} of the rounds"
        )


@dataclass(frozen=True)
class SmallFederation:
    """The settings of one small federation: numbers of clients, attackers and rounds, data, and seed."""

    num_clients: int
    num_malicious: int
    rounds: int
    dominant_share: float
    seed: int

    @property
    def attackers(self) -> tuple[int, ...]:
        """The malicious clients, drawn by seed."""
        drawn = generator(self.seed, "attackers").permutation(self.num_clients)[: self.num_malicious]
        return tuple(sorted(map(int, drawn)))


def attack_strength(
    attack: Any,
    *,
    num_clients: int = 20,
    num_malicious: int = 9,
    rounds: int = 15,
    dominant_share: float = 0.9,
    margin: float = 3.0,
    repeats: int = 3,
    seed: int = 0,
) -> Strength:
    """Measure the points of accuracy that an attack costs a federation that averages.

    Parameters
    ----------
    attack
        An :class:`~mabrfl.attacks.Attack`, or a plain function ``view -> rows``. A copy is used.
    num_clients, num_malicious
        K and f. The attackers are drawn by seed, and all clients take part in every round.
    rounds
        Rounds of training.
    dominant_share
        Share of a client's examples that have its dominant label: 0.1 is iid. See the notes.
    margin
        How many points of accuracy the attack must cost to count as harm.
    repeats
        Number of federations to average over.
    seed
        Root of all randomness: data of the clients, attackers, weights, order of examples.

    Notes
    -----
    The cost of an attack depends on the federation. In the default one the benign updates have a large spread,
    which some attacks need to hide in. Points lost, smallest and largest of 8 seeds that were not used to choose
    the default (K = 20, f = 9; the order of examples alone changes an accuracy by a standard deviation of 0.2):

    ============== ============ ============ ============ ============ ============ ============
    dominant share LIE          Min-Max      Min-Sum      Mimic        Gaussian     label flip
    ============== ============ ============ ============ ============ ============ ============
    0.9 (default)  7 to 13      19 to 32     5 to 12      10 to 18     11 to 18     25 to 36
    0.5            0 to 1       1 to 3       0 to 1       1 to 5       3 to 5       26 to 34
    ============== ============ ============ ============ ============ ============ ============

    So "hurts" here does not mean that an attack hurts everywhere. Sign flip, IPM and AGR-tailored cost more than
    50 points in both.
    """
    check_whole("num_clients", num_clients, at_least=1)
    check_whole("num_malicious", num_malicious)
    check_whole("rounds", rounds, at_least=1)
    check_whole("repeats", repeats, at_least=1)
    check_positive("margin", margin)
    if not (isinstance(dominant_share, int | float) and 0 < dominant_share < 1):
        raise ConfigError(f"dominant_share must lie between 0 and 1; got {dominant_share!r}")
    if num_malicious >= num_clients:
        raise ConfigError(f"num_malicious must be below num_clients = {num_clients}; got {num_malicious}")
    attack = as_attack(attack)
    seeds = [digest(seed, "self-test", number) for number in range(repeats)]
    settings = [SmallFederation(num_clients, num_malicious, rounds, dominant_share, each) for each in seeds]
    runs = [(*_baselines(setting), _run(copy.deepcopy(attack), setting)) for setting in settings]
    clean, absent, attacked = (float(np.mean([run[place].accuracy for run in runs])) for place in range(3))
    inactive = float(np.mean([run[2].inactive for run in runs]))
    reached = [[_reached(run[2].attack, run[place].weights) for run in runs] for place in (2, 0)]
    success, clean_success = (None if None in rates else float(np.mean(np.array(rates))) for rates in reached)
    return Strength(clean, absent, attacked, margin, inactive, success, clean_success)


@dataclass(frozen=True, eq=False)
class _Run:
    """The model at the end, its test accuracy in percent, the share of rounds without an attack, and the attack."""

    weights: Floats
    accuracy: float
    inactive: float
    attack: Attack | None


def _reached(attack: Attack | None, weights: Floats) -> float | None:
    """Return the attack success rate in percent, on all digits; None without a goal."""
    goal = None if attack is None else attack.goal(*_digits(), num_classes=CLASSES)
    if goal is None:
        return None
    with np.errstate(all="ignore"):
        return 100.0 * float(np.mean(predicted(weights, goal[0]) == goal[1]))


def _send_nothing(view: AttackerView) -> None:
    del view


@cache
def _baselines(setting: SmallFederation) -> tuple[_Run, _Run]:
    """Return the runs with honest and with absent attackers; the same for every attack."""
    return _run(None, setting), _run(FunctionAttack(_send_nothing), setting)


def _run(attack: Attack | None, setting: SmallFederation) -> _Run:
    """Train one federation."""
    inputs, labels, test_inputs, test_labels = _federation(setting)
    poisoned = _poisoned(attack, setting, inputs, labels) if attack is not None and attack.poisons else (inputs, labels)
    weights = initial_weights(setting.seed)
    last_step = None
    active = 0
    # An attack may drive the weights to infinity; the accuracy shows it.
    with np.errstate(all="ignore"):
        for number in range(1, setting.rounds + 1):
            data = poisoned if attack is not None and attack.poisoned_at(number) else (inputs, labels)
            sent = train(weights, *data, generator(setting.seed, "order", number))
            if attack is not None:
                sent = _attacked(
                    attack, setting, number, sent, weights=weights, last_step=last_step, data=(inputs, labels)
                )
            active += len(sent) == setting.num_clients
            last_step = sent.mean(axis=0)
            weights = weights + last_step
        accuracy = 100.0 * float(np.mean(predicted(weights, test_inputs) == test_labels))
    return _Run(weights, accuracy, 1 - active / setting.rounds, attack)


def _attacked(
    attack: Attack,
    setting: SmallFederation,
    number: int,
    updates: Floats,
    *,
    weights: Floats,
    last_step: Floats | None,
    data: tuple[Floats, Labels],
) -> Floats:
    """Return the rows that reach the server: the benign updates, and those of the attack."""
    attackers = setting.attackers
    honest = tuple(client for client in range(setting.num_clients) if client not in attackers)
    benign = updates[list(honest)]
    own_inputs, own_labels = _joined(attackers, *data)

    def rehearse(rows: Floats) -> Outcome:
        step = np.concatenate([benign, rows]).mean(axis=0)
        return Outcome(step, {client: Verdict(True, "accepted") for client in (*honest, *attackers)}, number)

    view = AttackerView(
        round=number,
        attackers=attackers,
        num_clients=setting.num_clients,
        num_malicious=setting.num_malicious,
        knowledge=attack.knowledge,
        global_weights=weights,
        last_step=last_step,
        layout=LAYOUT,
        own_updates=updates[list(attackers)] if attack.trains_at(number) else None,
        seed=setting.seed,
        own_accuracy=lambda model: float(np.mean(predicted(model, own_inputs) == own_labels)),
        secrets=Secrets(benign, honest, "fedavg-uniform", rehearse),
    )
    rows = craft(attack, view)
    return benign if rows is None else np.concatenate([benign, rows])


@cache
def _digits() -> tuple[Floats, Labels]:
    inputs, labels = load_digits(return_X_y=True)
    return (inputs / 16).astype(np.float32), labels.astype(np.int64)


def _federation(setting: SmallFederation) -> tuple[Floats, Labels, Floats, Labels]:
    """Return the clients' inputs ``(K, m, 64)`` and labels ``(K, m)``, and the test set."""
    inputs, labels = _digits()
    order = generator(setting.seed, "test-set").permutation(len(labels))
    test, train = order[:TEST_EXAMPLES], order[TEST_EXAMPLES:]
    chosen = np.empty((setting.num_clients, CLIENT_EXAMPLES), dtype=np.int64)
    share = setting.dominant_share
    for client in range(setting.num_clients):
        dominant = labels[train] == client % CLASSES
        odds = np.where(dominant, share / dominant.sum(), (1 - share) / (~dominant).sum())
        rng = generator(setting.seed, "client-data", client)
        chosen[client] = rng.choice(train, CLIENT_EXAMPLES, replace=False, p=odds)
    return inputs[chosen], labels[chosen], inputs[test], labels[test]


def _joined(clients: tuple[int, ...], inputs: Floats, labels: Labels) -> tuple[Floats, Labels]:
    """Return the examples of these clients together."""
    return inputs[list(clients)].reshape(-1, inputs.shape[2]), labels[list(clients)].reshape(-1)


def _poisoned(attack: Attack, setting: SmallFederation, inputs: Floats, labels: Labels) -> tuple[Floats, Labels]:
    inputs, labels = inputs.copy(), labels.copy()
    attack.survey(*_joined(setting.attackers, inputs, labels), num_classes=CLASSES)
    for place, client in enumerate(setting.attackers):
        rng = generator(setting.seed, "poison", client)
        own = attack.poisoner(place).poison(inputs[client].copy(), labels[client].copy(), num_classes=CLASSES, rng=rng)
        inputs[client], labels[client] = own
    return inputs, labels
