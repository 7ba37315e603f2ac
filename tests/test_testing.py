"""Every check of mabrfl.testing can fail: objects with one defect each, and the property that is named."""

import itertools
from functools import partial

import numpy as np
import pytest

from mabrfl import Decision, Selection
from mabrfl.aggregation import FedAvg
from mabrfl.attacks import Attack, Knowledge
from mabrfl.errors import ConfigError
from mabrfl.simulation.data import Dataset
from mabrfl.testing import check_attack, check_dataset, check_observer, check_rule, check_selector


def mean(cohort, **details):
    return Decision(weights=np.full(len(cohort), 1 / len(cohort)), **details)


class Scaled:
    """Remembers the largest norm; its state is complete."""

    def __init__(self):
        self.largest = 0.0

    def __call__(self, cohort):
        self.largest = max(self.largest, float(cohort.norms.max()))
        return Decision(weights=np.full(len(cohort), float(np.median(cohort.norms)) / len(cohort) / self.largest))

    def state_dict(self):
        return {"largest": self.largest}

    def load_state_dict(self, state):
        self.largest = state["largest"]


class NoState(Scaled):
    state_dict = load_state_dict = None


class HalfState(Scaled):
    load_state_dict = None


class LostState(Scaled):
    def load_state_dict(self, state):
        self.largest = 0.0


class ObjectState(Scaled):
    def state_dict(self):
        return {"largest": self.largest, "self": self}


class SharedState(Scaled):
    """Hands out the very array that it goes on to change."""

    def __init__(self):
        self.norms = np.zeros(1)

    def __call__(self, cohort):
        self.norms[0] = max(self.norms[0], cohort.norms.max())
        return Decision(weights=np.full(len(cohort), float(np.median(cohort.norms) / len(cohort) / self.norms[0])))

    def state_dict(self):
        return {"norms": self.norms}

    def load_state_dict(self, state):
        self.norms = state["norms"].copy()


def by_layer(cohort):
    norms = cohort.blocks["first"].norms + cohort.block("first", "last").norms
    return Decision(weights=1 / norms / np.sum(1 / norms))


@pytest.mark.parametrize("rule", [mean, FedAvg, FedAvg(), Scaled, Scaled(), by_layer])
def test_a_good_rule_passes(rule):
    check_rule(rule)


def changes_the_gram_matrix(cohort):
    np.fill_diagonal(cohort.gram, np.inf)
    return mean(cohort)


def changes_the_norms(cohort):
    cohort.norms[:] = 1
    return mean(cohort)


def writes_into_the_matrix(cohort):
    cohort.matrix[:] = 0
    return mean(cohort)


def fails_for_one_client(cohort):
    return Decision(weights=np.full(len(cohort), 1 / (len(cohort) - 1)))


def returns_the_first_row(cohort):
    return Decision(step=cohort.matrix[0])


def returns_the_first_id(cohort):
    return Decision(weights=np.eye(len(cohort))[0])


def returns_double_precision(cohort):
    return Decision(step=cohort.matrix.mean(axis=0).astype(np.float64))


def forgets_a_weight(cohort):
    return Decision(weights=np.ones(max(1, len(cohort) - 1)))


def forgets_to_return(cohort):
    mean(cohort)


def says_nan(cohort):
    return mean(cohort, facts={"score": np.nan})


def says_an_array(cohort):
    return mean(cohort, evidence=[{"norm": norm} for norm in cohort.norms.astype(np.float32)])


def rejects_the_smallest_id(cohort):
    return mean(cohort, reasons=["outlier", *["accepted"] * (len(cohort) - 1)])


def squares_in_single_precision(cohort):
    with np.errstate(all="ignore"):
        weights = 1 / np.einsum("ij,ij->i", cohort.matrix, cohort.matrix)
        return Decision(weights=weights / weights.sum())


def takes_ids_for_numbers(cohort):
    weights = np.array([1.0 + float(client) for client in cohort.ids])
    return Decision(weights=weights / weights.sum())


COUNTER = itertools.count(1)


def draws_without_a_name(cohort):
    return Decision(weights=np.full(len(cohort), float(next(COUNTER))))


def expects_attackers(num_malicious):
    if num_malicious == 0:
        raise ConfigError("num_malicious must be > 0; got 0")
    return mean


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (changes_the_gram_matrix, "its input stays as it was - it changed cohort.gram in place"),
        (changes_the_norms, "its input stays as it was - it changed cohort.norms"),
        (writes_into_the_matrix, "its input stays as it was - it raised ValueError: .*read-only"),
        (fails_for_one_client, "every number of clients .* - it raised ZeroDivisionError"),
        (expects_attackers, "every number of clients and of attackers .* - it raised ConfigError: num_malicious"),
        (returns_the_first_row, "a view of the updates; return a copy"),
        (returns_double_precision, "the step must be float32, as the updates are; got float64"),
        (forgets_a_weight, "one weight per row; got 8 for 9 rows"),
        (forgets_to_return, "must return a Decision; got NoneType"),
        (says_nan, "plain finite numbers and strings"),
        (says_an_array, "plain finite numbers and strings: .*float32"),
        (draws_without_a_name, "draws_without_a_name: the same seed gives the same bytes - two equal rules"),
        (returns_the_first_id, "neither order nor names of the clients matter - .* gave another step"),
        (rejects_the_smallest_id, "neither order nor names of the clients matter - .* judged differently"),
        (squares_in_single_precision, "updates of any size give a finite step - the step is not finite"),
        (NoState, "can be saved and restored - it remembers earlier rounds, but has no state_dict"),
        (HalfState, "it has state_dict alone"),
        (LostState, "saved and restored - after a restart it goes on differently"),
        (ObjectState, "saved and restored - it raised StateError"),
        (SharedState, "saved and restored - state_dict must return a copy"),
    ],
)
def test_a_rule_with_a_defect_fails_and_the_property_is_named(rule, message):
    with pytest.raises(AssertionError, match=message):
        check_rule(rule)


def test_names_may_matter_but_ids_need_not_be_numbers():
    check_rule(returns_the_first_id, names_matter=True)
    with pytest.raises(AssertionError, match=r"ids are any numbers and strings.* - it raised ValueError: .*'ada'"):
        check_rule(takes_ids_for_numbers, names_matter=True)


class InTurn:
    """Selects one client after the other; its state is complete."""

    def __init__(self):
        self.turn = 0

    def __call__(self, candidates):
        self.turn += 1
        return [candidates.ids[self.turn % len(candidates.ids)]] if candidates.ids else []

    def state_dict(self):
        return {"turn": self.turn}

    def load_state_dict(self, state):
        self.turn = state["turn"]


class ForgetfulTurn(InTurn):
    state_dict = load_state_dict = None


class LostTurn(InTurn):
    def load_state_dict(self, state):
        self.turn = 0


def invents(candidates):
    return [*candidates.ids, "nobody"]


def selects_twice(candidates):
    return Selection([*candidates.ids, *candidates.ids[:1]])


def selects_the_first(candidates):
    return [candidates.ids[0]]


def selects_somebody_always(candidates):
    return list(candidates.ids) or ["nobody"]


def changes_beliefs(candidates):
    candidates.benign[:] = 1
    return candidates.ids


def selects_by_chance(candidates):
    return candidates.ids[: next(COUNTER) % 7]  # ten calls a pass: other numbers in the next


@pytest.mark.parametrize("selector", [InTurn, InTurn(), lambda candidates: candidates.ids])
def test_a_good_selector_passes(selector):
    check_selector(selector)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (invents, r"selects candidates, each at most once - it selected \['nobody'\]"),
        (selects_twice, "each at most once - it selected a client twice"),
        (selects_the_first, "without candidates it selects nobody - it raised IndexError"),
        (selects_somebody_always, "without candidates it selects nobody - it selected"),
        (changes_beliefs, "its input stays as it was - it changed the beliefs"),
        (selects_by_chance, "the same seed gives the same selection"),
        (ForgetfulTurn, "it remembers earlier rounds, but has no state_dict"),
        (LostTurn, "after a restart it goes on differently"),
    ],
)
def test_a_selector_with_a_defect_fails_and_the_property_is_named(selector, message):
    with pytest.raises(AssertionError, match=message):
        check_selector(selector)


def reversed_updates(view):
    return -view.own_updates


class Growing(Attack):
    """Pushes harder each round; its state is complete."""

    def __init__(self):
        self.factor = 1.0

    def __call__(self, view):
        self.factor *= 1.5
        return self.factor * view.own_updates

    def state_dict(self):
        return {"factor": self.factor}

    def load_state_dict(self, state):
        self.factor = state["factor"]


class ForgetfulGrowing(Growing):
    state_dict = load_state_dict = None


class LostGrowing(Growing):
    def load_state_dict(self, state):
        self.factor = 1.0


class Flipping(Attack):
    poisons = True

    def poison(self, inputs, labels, *, num_classes, rng):
        return inputs, (labels + 1) % num_classes


class FlippingInPlace(Flipping):
    def poison(self, inputs, labels, *, num_classes, rng):
        labels[:] = 0
        return inputs, labels


class FlippingTooFar(Flipping):
    def poison(self, inputs, labels, *, num_classes, rng):
        return inputs, labels + 1


class FlippingByChance(Flipping):
    def poison(self, inputs, labels, *, num_classes, rng):
        return inputs, (labels + next(COUNTER)) % num_classes


class Doubling(Flipping):
    def poison(self, inputs, labels, *, num_classes, rng):
        return np.concatenate([inputs, inputs]), labels


class Flattening(Flipping):
    def poison(self, inputs, labels, *, num_classes, rng):
        return inputs.reshape(len(inputs), -1), labels


class ClaimsOne(Attack):
    def claims(self, examples):
        return [1000.0]


class RenamesOthers(Attack):
    def new_identities(self, rejected, round_number):
        return [*rejected, 1]


class Curious(Attack):
    """Looks at what it does not declare."""

    def __call__(self, view):
        return -view.benign[: len(view.attackers)]


class Averaging(Attack):
    """Needs a benign update, and a finite one."""

    knowledge = Knowledge.PARTIAL

    def __call__(self, view):
        with np.errstate(all="ignore"):
            return np.tile(view.benign.sum(axis=0) / max(1, len(view.benign)), (len(view.attackers), 1))


class Cubing(Attack):
    def __call__(self, view):
        with np.errstate(over="ignore"):
            return view.own_updates**3


def writes_into_its_view(view):
    view.own_updates[:] *= -1
    return view.own_updates


def sends_one_row(view):
    return view.own_updates[0]


def sends_nan(view):
    return np.full(view.shape, np.nan)


def sends_by_chance(view):
    return np.full(view.shape, float(next(COUNTER)))


@pytest.mark.parametrize("attack", [reversed_updates, Growing, Growing(), Flipping()])
def test_a_good_attack_passes(attack):
    check_attack(attack)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (writes_into_its_view, "its input stays as it was - it raised ValueError: .*read-only"),
        (Curious, "it raised KnowledgeError: benign is hidden"),
        (sends_one_row, r"must return shape \(attackers, parameters\)"),
        (sends_nan, "one row per attacker, or nothing - with 6 benign clients and 5 attackers it sent .* not finite"),
        (Averaging, "benign rows that are not finite do not spread"),
        (Cubing, "small and large updates give finite rows"),
        (sends_by_chance, "the same seed gives the same bytes"),
        (ForgetfulGrowing, "it remembers earlier rounds, but has no state_dict"),
        (LostGrowing, "after a restart it goes on differently"),
        (FlippingInPlace, "poison changed its input in place"),
        (FlippingTooFar, "labels must be whole numbers from 0 to num_classes - 1"),
        (FlippingByChance, "poison with the same generator gave different data"),
        (Doubling, "it gave 80 inputs and 40 labels"),
        (Flattening, r"inputs must keep their shape; got \(64,\)"),
        (ClaimsOne, "it claims 1 numbers of examples for 3 attackers"),
        (RenamesOthers, r"clients 7 and 9 were rejected; it renames \['1'\]"),
    ],
)
def test_an_attack_with_a_defect_fails_and_the_property_is_named(attack, message):
    with pytest.raises(AssertionError, match=message):
        check_attack(attack)


def test_an_attack_may_send_nan_on_purpose():
    check_attack(sends_nan, finite=False)


def blobs(**changes):
    rng = np.random.default_rng(0)
    parts = {
        "train_inputs": rng.normal(size=(30, 4)).astype(np.float32),
        "train_labels": np.arange(30) % 3,
        "test_inputs": rng.normal(size=(5, 4)).astype(np.float32),
        "test_labels": np.arange(5) % 3,
        "num_classes": 3,
    }
    return Dataset("blobs", **{**parts, **changes})


def test_a_good_data_set_passes():
    check_dataset(blobs)
    check_dataset(blobs())


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: blobs().train_inputs, "it is a Dataset, or a function that returns one - got ndarray"),
        (lambda: blobs(train_labels=[7] * 30), "it raised DatasetError: blobs: train labels must be 0..2; got 7"),
        (
            lambda: blobs(train_inputs=np.full((30, 4), next(COUNTER), np.float32)),
            "every load gives the same numbers - the second load gave others",
        ),
        (lambda: blobs(num_classes=5), r"every class has training examples - classes \[3, 4\] of 5 have none"),
        (lambda: blobs(train_inputs=np.ones((30, 4), np.float32)), "inputs differ - all training inputs are the same"),
    ],
)
def test_a_data_set_with_a_defect_fails_and_the_property_is_named(load, message):
    with pytest.raises(AssertionError, match=message):
        check_dataset(load)


class Counting:
    def __init__(self):
        self.rounds = 0

    def round_done(self, record):
        self.rounds += 1


class Misspelt:
    def round_end(self, record):
        pass


class NoMethod:
    finished = True


class NoArgument:
    def failed(self):
        pass


@pytest.mark.parametrize("observer", [Counting, Counting(), partial(Counting)])
def test_a_good_observer_passes(observer):
    check_observer(observer)


@pytest.mark.parametrize(
    ("observer", "message"),
    [
        (Misspelt, "at least one of the methods started, round_done, finished, failed - it has round_end"),
        (NoMethod(), "NoMethod: each of its methods takes one argument - finished is bool"),
        (NoArgument, r"each of its methods takes one argument - failed\(\): too many"),
    ],
)
def test_an_observer_with_a_defect_fails_and_the_property_is_named(observer, message):
    with pytest.raises(AssertionError, match=message):
        check_observer(observer)
