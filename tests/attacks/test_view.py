from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from helpers import random_rows
from mabrfl.attacks import Attack, AttackerView, Knowledge, Secrets, as_attack, craft
from mabrfl.errors import ConfigError, KnowledgeError
from mabrfl.protocols import Stateful
from mabrfl.testing import make_view

ROWS = random_rows(3, 4)


def test_levels_of_knowledge_are_ordered_by_what_they_include_and_not_by_their_words():
    table = [[level.includes(other) for other in Knowledge] for level in Knowledge]
    assert table == [[True, False, False], [True, True, False], [True, True, True]]


@pytest.mark.parametrize("name", ["benign", "benign_ids"])
def test_agnostic_view_refuses_benign_updates_and_names_the_levels_that_may_see_them(name):
    view = make_view(ROWS, knowledge=Knowledge.AGNOSTIC)
    with pytest.raises(KnowledgeError, match=rf"{name} is hidden.*'partial' or 'full'; this one has 'agnostic'"):
        getattr(view, name)


@pytest.mark.parametrize("level", [Knowledge.AGNOSTIC, Knowledge.PARTIAL])
def test_only_full_knowledge_knows_the_defense(level):
    view = make_view(ROWS, knowledge=level)
    with pytest.raises(KnowledgeError, match=rf"defense_name is hidden.*knowledge 'full'; this one has '{level}'"):
        _ = view.defense_name
    with pytest.raises(KnowledgeError, match="rehearse is hidden"):
        view.rehearse(ROWS)


def test_partial_view_shows_benign_updates():
    view = make_view(ROWS, knowledge=Knowledge.PARTIAL)
    np.testing.assert_array_equal(view.benign, ROWS)
    assert view.benign_ids == (0, 1, 2)


def test_full_view_rehearses_with_the_defense():
    view = make_view(ROWS, attackers=1)
    outcome = view.rehearse(np.zeros((1, 4)))
    np.testing.assert_allclose(outcome.step, ROWS.sum(axis=0) / 4)
    assert view.defense_name == "krum"


def test_hidden_updates_are_not_even_stored_in_an_agnostic_view():
    view = make_view(ROWS, knowledge=Knowledge.AGNOSTIC)
    held = [value for value in vars(view).values() if isinstance(value, dict)]
    assert held == [{}]
    assert not any(value is ROWS or getattr(value, "base", None) is ROWS for value in vars(view).values())


def test_view_without_secrets_or_rehearsal_says_so():
    bare = AttackerView(
        round=1, attackers=(0,), num_clients=2, num_malicious=1, knowledge=Knowledge.FULL, global_weights=np.zeros(2)
    )
    with pytest.raises(KnowledgeError, match="benign is not available: this view was made without secrets"):
        _ = bare.benign
    secrets = Secrets(np.zeros((1, 2)), (1,))
    view = AttackerView(
        round=1,
        attackers=(0,),
        num_clients=2,
        num_malicious=1,
        knowledge=Knowledge.FULL,
        global_weights=np.zeros(2),
        secrets=secrets,
    )
    with pytest.raises(KnowledgeError, match="made without a copy of the defense"):
        view.rehearse(np.zeros((1, 2)))


def test_secrets_need_one_id_per_row():
    with pytest.raises(ValueError, match="got 2 ids for 3 benign rows"):
        Secrets(ROWS, (0, 1))


def test_attack_cannot_write_into_the_simulators_arrays():
    view = make_view(ROWS, own=ROWS[:2])
    for array in (view.benign, view.own_updates, view.global_weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    ROWS[0, 0] += 0.0  # the owner still can


def test_streams_depend_on_seed_purpose_round_and_key():
    draws = {
        make_view(ROWS, round=number, seed=seed).rng(purpose, *key).random()
        for number in (1, 2)
        for seed in (0, 1)
        for purpose in ("a", "b")
        for key in ((), (7,))
    }
    assert len(draws) == 16
    assert make_view(ROWS).rng("a").random() == make_view(ROWS).rng("a").random()


def test_preference_is_the_same_in_every_round():
    first, second = make_view(ROWS, round=1).preference("x"), make_view(ROWS, round=9).preference("x")
    np.testing.assert_array_equal(first, second)


def test_plain_function_becomes_an_agnostic_training_attack():
    def reverse(view):
        """Send it backwards."""
        return -view.own_updates

    attack = as_attack(reverse)
    assert (attack.knowledge, attack.trains, attack.poisons) == (Knowledge.AGNOSTIC, True, False)
    assert attack.__doc__ == "Send it backwards."
    assert "reverse" in repr(attack)
    np.testing.assert_array_equal(attack(make_view(ROWS, own=ROWS[:2])), -ROWS[:2])


def test_attributes_of_a_function_are_respected():
    def spy(view):
        return view.benign[:2]

    spy.knowledge = "partial"
    spy.trains = False
    attack = as_attack(spy)
    assert attack.knowledge is Knowledge.PARTIAL
    assert attack.trains is False


def test_wrapped_object_keeps_its_poisoning_and_its_state():
    class Own:
        poisons = True

        def poison(self, inputs, labels, *, num_classes, rng):
            return inputs, labels * 0

        def poisoned_at(self, number):
            return number > 3

        def state_dict(self):
            return {"x": 1}

        def load_state_dict(self, state):
            self.state = state

        def __call__(self, view):
            return view.own_updates

    attack = as_attack(Own())
    labels = attack.poison(ROWS, np.ones(3), num_classes=2, rng=np.random.default_rng(0))[1]
    assert labels.sum() == 0
    assert [attack.poisoned_at(number) for number in (3, 4)] == [False, True]
    assert isinstance(attack, Stateful)
    assert attack.state_dict() == {"x": 1}
    assert not isinstance(as_attack(lambda view: None), Stateful)


def test_attack_object_is_returned_as_it_is():
    attack = Attack()
    assert as_attack(attack) is attack


def test_class_may_declare_its_knowledge_by_its_word():
    class Spy(Attack):
        knowledge = "partial"

    @dataclass(frozen=True)
    class Frozen(Attack):
        knowledge: str = "full"

    class Clairvoyant(Attack):
        knowledge = "everything"

    assert as_attack(Spy()).knowledge is Knowledge.PARTIAL
    assert as_attack(Frozen()).knowledge is Knowledge.FULL
    with pytest.raises(ConfigError, match=r"Clairvoyant must be one of agnostic, partial, full; got 'everything'"):
        as_attack(Clairvoyant())


def test_what_is_no_attack_is_refused():
    with pytest.raises(ConfigError, match="must be callable with one argument, the view; got 3"):
        as_attack(3)
    with pytest.raises(ConfigError, match=r"not a class: write Attack\(\.\.\.\)"):
        as_attack(Attack)

    def clairvoyant(view):
        return None

    clairvoyant.knowledge = "everything"
    with pytest.raises(ConfigError, match=r"clairvoyant must be one of agnostic, partial, full; got 'everything'"):
        as_attack(clairvoyant)

    def poisoner(view):
        return None

    poisoner.poisons = True
    with pytest.raises(ConfigError, match="says poisons = True but has no poison"):
        as_attack(poisoner)


def test_base_class_sends_what_training_gave():
    view = make_view(ROWS, own=ROWS[:2] * 3)
    np.testing.assert_array_equal(Attack()(view), ROWS[:2] * 3)


def test_craft_checks_the_shape_and_the_kind_of_numbers():
    view = make_view(ROWS)
    with pytest.raises(ConfigError, match=r"\(attackers, parameters\) = \(2, 4\); got \(1, 4\)"):
        craft(as_attack(lambda view: np.zeros((1, 4))), view)
    with pytest.raises(ConfigError, match="must return real numbers; got an array of complex128"):
        craft(as_attack(lambda view: np.zeros((2, 4), dtype=complex)), view)


def test_craft_gives_rows_of_the_models_type_and_lets_nan_through():
    view = make_view(ROWS.astype(np.float32))
    rows = craft(as_attack(lambda view: [[np.nan] * 4, [1e300] * 4]), view)
    assert rows.dtype == np.float32
    assert np.isnan(rows[0]).all()
    assert np.isinf(rows[1]).all()


def test_craft_without_attackers_or_without_an_attack_is_none():
    assert craft(as_attack(lambda view: 1 / 0), make_view(ROWS, attackers=0)) is None
    assert craft(as_attack(lambda view: None), make_view(ROWS)) is None
