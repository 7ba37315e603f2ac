"""The view of an attacker: the part of a round that it may see.

The three levels are the paper's (section "Attack Model"). A view holds nothing beyond its level: the simulator
passes everything as :class:`Secrets`, and the view keeps what the level includes. So no attack can see more than it
declares, not even by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import KnowledgeError
from mabrfl.layout import Layout
from mabrfl.rng import ClientId, generator, uniforms
from mabrfl.updates import Floats, Outcome

Rehearsal = Callable[[Floats], Outcome]
Observes = Literal["selected", "all"]


class Knowledge(StrEnum):
    """The paper's three kinds of adversary, weakest first."""

    AGNOSTIC = "agnostic"
    """Knows neither the benign updates nor the defense."""
    PARTIAL = "partial"
    """Knows the benign updates of the round."""
    FULL = "full"
    """Knows the benign updates of the round and the defense."""

    def includes(self, other: Knowledge) -> bool:
        """Whether this level includes the other (``<`` would compare the words).

        Examples
        --------
        >>> Knowledge.FULL.includes(Knowledge.PARTIAL), Knowledge.AGNOSTIC.includes(Knowledge.PARTIAL)
        (True, False)
        """
        levels = list(Knowledge)
        return levels.index(self) >= levels.index(other)


@dataclass(frozen=True, eq=False)
class Secrets:
    """Facts that only some attackers know. The simulator fills in all of them; the view keeps the allowed ones.

    Attributes
    ----------
    benign
        ``(b, d)`` updates of benign clients, as the attack ``observes``; b may be 0.
    benign_ids
        Their ids.
    defense_name
        The catalogue name of the defense at the server.
    rehearse
        ``rows -> Outcome``: the result of a copy of the defense for these rows.
    """

    benign: Floats
    benign_ids: tuple[ClientId, ...]
    defense_name: str = ""
    rehearse: Rehearsal | None = None

    def __post_init__(self) -> None:
        if len(self.benign) != len(self.benign_ids):
            raise ValueError(f"one id per row: got {len(self.benign_ids)} ids for {len(self.benign)} benign rows")


@dataclass(frozen=True, eq=False)
class AttackerView:
    """Everything that an attack sees of a round. Its arrays are read-only.

    Attributes
    ----------
    round
        The round's number, from 1.
    attackers
        The clients that the adversary controls and that were selected, in canonical order.
    num_clients, num_malicious
        K and f: all clients, and all clients that the adversary controls, selected or not.
    knowledge
        The level that the attack declared.
    global_weights
        ``(d,)`` the public model.
    last_step
        ``(d,)`` difference of the last two public models; None in the first round.
    layout
        The layers of the public model; None if they are not known.
    own_updates
        ``(a, d)`` updates of the attackers' local training, on poisoned data if the attack poisons data; None if
        the attack does not train.
    seed
        Root of the named random streams.
    controlled
        All clients that the adversary controls, selected or not, in canonical order; ``attackers`` if left out.
    own_accuracy
        ``weights -> share``: the share of (some of) the attackers' own examples that a model with these weights
        classifies correctly; None where nothing can measure it.
    secrets
        Only for the constructor: see :class:`Secrets`.
    """

    round: int
    attackers: tuple[ClientId, ...]
    num_clients: int
    num_malicious: int
    knowledge: Knowledge
    global_weights: Floats = field(repr=False)
    last_step: Floats | None = field(default=None, repr=False)
    own_updates: Floats | None = field(default=None, repr=False)
    seed: int = 0
    controlled: tuple[ClientId, ...] = ()
    layout: Layout | None = field(default=None, repr=False)
    own_accuracy: Callable[[Floats], float] | None = field(default=None, repr=False)
    secrets: InitVar[Secrets | None] = None

    def __post_init__(self, secrets: Secrets | None) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, entry.name, _read_only(value))
        if not self.controlled:
            object.__setattr__(self, "controlled", self.attackers)
        allowed: dict[str, Any] = {}
        if secrets is not None and self.knowledge.includes(Knowledge.PARTIAL):
            allowed.update(benign=_read_only(secrets.benign), benign_ids=tuple(secrets.benign_ids))
        if secrets is not None and self.knowledge.includes(Knowledge.FULL):
            allowed.update(defense_name=secrets.defense_name, rehearse=secrets.rehearse)
        object.__setattr__(self, "_allowed", allowed)

    @property
    def shape(self) -> tuple[int, int]:
        """``(a, d)``: the shape of the rows that an attack returns."""
        return len(self.attackers), len(self.global_weights)

    @property
    def benign(self) -> Floats:
        """``(b, d)`` updates of the benign clients of this round (needs partial knowledge)."""
        rows: Floats = self._secret("benign", Knowledge.PARTIAL)
        return rows

    @property
    def benign_ids(self) -> tuple[ClientId, ...]:
        """Ids of the rows of ``benign`` (needs partial knowledge)."""
        ids: tuple[ClientId, ...] = self._secret("benign_ids", Knowledge.PARTIAL)
        return ids

    @property
    def defense_name(self) -> str:
        """Name of the defense at the server (needs full knowledge)."""
        return str(self._secret("defense_name", Knowledge.FULL))

    def rehearse(self, rows: Floats) -> Outcome:
        """Return what the server would do with the benign updates and these rows (needs full knowledge).

        A copy of the real defense, with its present state, computes it; the server notices nothing.
        """
        rehearsal: Rehearsal | None = self._secret("rehearse", Knowledge.FULL)
        if rehearsal is None:
            raise KnowledgeError("rehearse is not available: this view was made without a copy of the defense")
        return rehearsal(rows)

    def rng(self, purpose: str, *key: ClientId) -> np.random.Generator:
        """Return a generator named after the purpose and the round (and a key, such as a client)."""
        return generator(self.seed, purpose, self.round, *key)

    def lasting_rng(self, purpose: str, *key: ClientId) -> np.random.Generator:
        """Return a generator named after the purpose (and a key, such as a client), the same in every round."""
        return generator(self.seed, purpose, 0, *key)

    def preference(self, purpose: str) -> NDArray[np.float64]:
        """Return one uniform number per benign client, the same in every round of the run (needs partial knowledge)."""
        return uniforms(self.seed, purpose, 0, self.benign_ids)

    def _secret(self, name: str, needed: Knowledge) -> Any:
        if not self.knowledge.includes(needed):
            enough = " or ".join(repr(level.value) for level in Knowledge if level.includes(needed))
            raise KnowledgeError(
                f"{name} is hidden: it needs an attack with knowledge {enough}; this one has {self.knowledge.value!r}"
            )
        allowed: dict[str, Any] = vars(self)["_allowed"]
        if name not in allowed:
            raise KnowledgeError(f"{name} is not available: this view was made without secrets")
        return allowed[name]


def _read_only(array: Floats) -> Floats:
    guarded = array.view()
    guarded.flags.writeable = False
    return guarded
