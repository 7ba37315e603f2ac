"""The contract of attacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mabrfl.attacks import Attack, AttackerView, Knowledge, Secrets, as_attack, craft
from mabrfl.rng import ClientId, generator
from mabrfl.testing.properties import both_or_neither, expect, fresh, holds, random_rows, saved
from mabrfl.updates import Floats, Outcome, Verdict


def check_attack(attack: Any, *, finite: bool = True) -> None:
    """Check that an attack keeps the contract of :class:`~mabrfl.attacks.Attack`.

    Parameters
    ----------
    attack
        An attack or a function ``view -> rows``, which is copied; or a class, or a ``functools.partial`` of one.
    finite
        Whether it must send finite numbers; False for an attack that sends NaN on purpose.

    Raises
    ------
    AssertionError
        Naming the property that does not hold.

    Examples
    --------
    >>> def reverse(view):
    ...     view.own_updates[:] *= -1
    ...     return view.own_updates
    >>> check_attack(reverse)
    Traceback (most recent call last):
    ...
    AssertionError: reverse: its input stays as it was - it raised ValueError: ... read-only
    """

    def make() -> Attack:
        return as_attack(fresh(attack, num_malicious=5, num_clients=11))

    with holds(attack, "its input stays as it was"):
        _check_input(make())
    with holds(attack, "it sends one row per attacker, or nothing"):
        for benign, attackers in ((6, 5), (6, 1), (1, 2), (0, 3)):
            for dtype in (np.float32, np.float64):
                _send(make(), random_rows(benign, dtype=dtype), attackers=attackers, finite=finite)
    with holds(attack, "benign rows that are not finite do not spread"):
        rows = random_rows(6, dtype=np.float32)
        rows[1, 3], rows[4, 0] = np.nan, np.inf
        _send(make(), rows, finite=finite)
    with holds(attack, "small and large updates give finite rows"):
        for scale in (1e-15, 1e15):
            _send(make(), random_rows(6, dtype=np.float32) * np.float32(scale), scale=scale, finite=finite)
    with holds(attack, "the same seed gives the same bytes"):
        one, two = (_rounds(made, (1, 2, 3), finite=finite) for made in (make(), make()))
        expect(one == two, "two equal attacks sent different rows")
    with holds(attack, "what it remembers can be saved and restored"):
        _check_memory(make, finite=finite)
    with holds(attack, "poisoned data are as many examples with labels that exist"):
        _check_poison(make())
    with holds(attack, "it claims one number of examples per attacker and renames none but its own clients"):
        _check_claims(make())


def make_view(
    benign: Any,
    *,
    attackers: int = 2,
    own: Any = None,
    knowledge: Knowledge = Knowledge.FULL,
    num_clients: int | None = None,
    num_malicious: int | None = None,
    defense: str = "krum",
    round: int = 1,
    seed: int = 0,
    last_step: Any = None,
) -> AttackerView:
    """Return what an attack sees of a round in which everybody is selected unless ``num_clients`` says otherwise.

    Parameters
    ----------
    benign
        ``(b, d)`` updates of the benign clients 0, 1, ...; the attackers' ids come after them.
    attackers
        How many attackers are selected.
    own
        ``(a, d)`` what the attackers' own training gave.
    knowledge, num_clients, num_malicious, round, seed, last_step
        As in :class:`~mabrfl.attacks.AttackerView`.
    defense
        The name of the defense. A rehearsal accepts everybody and returns the mean.
    """
    rows: Floats = np.asarray(benign)
    ids = tuple(range(len(rows)))

    def rehearse(sent: Floats) -> Outcome:
        everyone = np.concatenate([rows, sent])
        verdicts: dict[ClientId, Verdict] = {client: Verdict(True, "accepted") for client in range(len(everyone))}
        return Outcome(everyone.mean(axis=0), verdicts, round)

    return AttackerView(
        round=round,
        attackers=tuple(range(len(rows), len(rows) + attackers)),
        num_clients=num_clients or len(rows) + attackers,
        num_malicious=attackers if num_malicious is None else num_malicious,
        knowledge=knowledge,
        global_weights=np.zeros(rows.shape[1], dtype=rows.dtype),
        last_step=None if last_step is None else np.asarray(last_step),
        own_updates=None if own is None else np.asarray(own),
        seed=seed,
        own_accuracy=lambda weights: float(np.mean(weights > 0)),
        secrets=Secrets(rows, ids, defense, rehearse),
    )


def _send(
    attack: Attack, benign: Floats, *, attackers: int = 5, round: int = 1, scale: float = 1.0, finite: bool = True
) -> bytes | None:
    """Return what an attack sends in a round, as bytes; check it."""
    own = None
    if attack.trains_at(round):
        own = random_rows(attackers, benign.shape[1], seed=1, dtype=benign.dtype) * benign.dtype.type(scale)
    view = make_view(
        benign, attackers=attackers, own=own, knowledge=attack.knowledge, num_clients=11, num_malicious=5, round=round
    )
    rows = craft(attack, view)
    if rows is None:
        return None
    seen = f"{len(benign)} benign clients and {attackers} attackers"
    expect(not finite or np.isfinite(rows).all(), f"with {seen} it sent numbers that are not finite")
    return rows.tobytes()


def _rounds(attack: Attack, numbers: tuple[int, ...], *, finite: bool) -> list[bytes | None]:
    return [_send(attack, random_rows(6, seed=number), round=number, finite=finite) for number in numbers]


def _check_input(attack: Attack) -> None:
    benign, own = random_rows(6), random_rows(5, seed=1)
    before = benign.copy(), own.copy()
    trained = own if attack.trains_at(1) else None
    craft(attack, make_view(benign, attackers=5, own=trained, knowledge=attack.knowledge))
    for name, array, copy in (("benign", benign, before[0]), ("own_updates", own, before[1])):
        expect(np.array_equal(array, copy), f"it changed view.{name} in place")


def _check_memory(make: Callable[[], Attack], *, finite: bool) -> None:
    one: Any = make()
    if not both_or_neither(one):
        before, _, after = (_rounds(one, (number,), finite=finite) for number in (1, 2, 1))
        expect(before == after, "it remembers earlier rounds, but has no state_dict and load_state_dict")
        return
    _rounds(one, (1, 2), finite=finite)
    two: Any = make()
    two.load_state_dict(saved(one))
    later = [_rounds(each, (3, 4), finite=finite) for each in (one, two)]
    expect(later[0] == later[1], "after a restart it goes on differently")


def _check_poison(attack: Attack) -> None:
    if not attack.poisons:
        return
    inputs = random_rows(40, 64, dtype=np.float32).reshape(40, 1, 8, 8).clip(0, 1)
    labels = np.arange(40) % 4
    before = inputs.copy(), labels.copy()
    attack.survey(inputs, labels, num_classes=4)
    results = [
        attack.poison(inputs, labels, num_classes=4, rng=generator(0, "mabrfl.testing.poison")) for _ in range(2)
    ]
    expect(np.array_equal(inputs, before[0]) and np.array_equal(labels, before[1]), "poison changed its input in place")
    for one, two in zip(*results, strict=True):
        expect(np.array_equal(one, two), "poison with the same generator gave different data")
    new_inputs, new_labels = (np.asarray(part) for part in results[0])
    expect(new_inputs.shape[1:] == inputs.shape[1:], f"inputs must keep their shape; got {new_inputs.shape[1:]}")
    expect(len(new_inputs) == len(new_labels), f"it gave {len(new_inputs)} inputs and {len(new_labels)} labels")
    known = new_labels.dtype.kind in "iu" and np.all((new_labels >= 0) & (new_labels < 4))
    expect(known, "labels must be whole numbers from 0 to num_classes - 1")


def _check_claims(attack: Attack) -> None:
    claims = list(attack.claims([3, 8, 5]))
    expect(len(claims) == 3, f"it claims {len(claims)} numbers of examples for 3 attackers")
    renamed = set(attack.new_identities((7, 9), 1))
    expect(renamed <= {7, 9}, f"clients 7 and 9 were rejected; it renames {sorted(map(str, renamed - {7, 9}))}")
