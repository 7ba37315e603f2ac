"""Servers that know who attacks, for comparison, and a schedule of attackers.

Fig. 1a of the paper compares three ways of sampling 10 of 50 clients, 15 of them malicious: at random (A), at random
with all malicious updates discarded (B: the attack ``silent``), and benign clients alone (rational: the selector
``honest-only``). No server can do the last two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from mabrfl.attacks import Attack, AttackerView, Knowledge
from mabrfl.checks import check_choice, check_whole
from mabrfl.protocols import Selector, Stateful
from mabrfl.rng import ClientId
from mabrfl.updates import Candidates, Floats, Selection


class Silent(Attack):
    """Attackers are selected but send nothing, as if the server knew who attacks and discarded their updates."""

    knowledge = Knowledge.AGNOSTIC
    trains = False

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Send nothing."""
        del view
        return None


class HonestOnly:
    """Select m of the honest clients uniformly at random: the server knows the attackers.

    The random numbers are those of :class:`~mabrfl.selection.Uniform`: an honest client that it selects is selected
    here too.

    Parameters
    ----------
    num_selected
        m, the number of clients per round; all honest ones if there are fewer.
    num_attackers
        How many attackers there are.
    attackers_chosen
        The rule that chose them, ``"random"`` or ``"last"``: the run's setting of that name.
    num_clients, seed
        Of the run.
    """

    def __init__(
        self,
        *,
        num_selected: int = 10,
        num_attackers: int = 15,
        attackers_chosen: Literal["random", "last"] = "random",
        num_clients: int = 0,
        seed: int = 0,
    ) -> None:
        from mabrfl.simulation.federation import choose_attackers  # noqa: PLC0415 (imports torch: not for planning a sweep)

        check_whole("num_selected", num_selected, at_least=1)
        check_whole("num_attackers", num_attackers)
        check_choice("attackers_chosen", attackers_chosen, ("random", "last"))
        self.num_selected = num_selected
        self.attackers = choose_attackers(num_clients, num_attackers, rule=attackers_chosen, seed=seed)
        # Other ids need not be honest: an attacker may come back under a new id.
        self.honest = frozenset(range(num_clients)) - self.attackers

    def __call__(self, candidates: Candidates) -> Selection:
        """Select; see the class."""
        order = np.argsort(candidates.uniforms("uniform"), kind="stable")
        honest = [candidates.ids[k] for k in order if candidates.ids[k] in self.honest]
        return Selection(honest[: self.num_selected])


class AttackersPerRound:
    """A schedule: of the clients that a selector chooses, a fixed number are attackers.

    The published experiments on backdoors have such schedules. Attackers that are too many leave their places to
    honest clients, as long as there are some; attackers that are too few take the places of honest clients. Who
    exactly is drawn anew in each round.

    Parameters
    ----------
    selector
        Chooses the clients, and so their number.
    attackers
        Returns the present ids of the attackers.
    count
        Attackers in each round.
    """

    def __init__(self, selector: Selector, attackers: Callable[[], frozenset[ClientId]], count: int) -> None:
        check_whole("attackers_per_round", count, at_least=1)
        self.selector, self.attackers, self.count = selector, attackers, count

    def __call__(self, candidates: Candidates) -> Selection:
        """Select; see the class."""
        chosen = self.selector(candidates)
        selection = chosen if isinstance(chosen, Selection) else Selection(chosen)
        attackers, places = self.attackers(), set(selection.ids)
        order = [candidates.ids[k] for k in np.argsort(candidates.uniforms("attackers-per-round"), kind="stable")]
        # Those that were chosen come first, so that as few as possible change places.
        order.sort(key=lambda client: client not in places)
        attacking = [client for client in order if client in attackers][: min(self.count, len(places))]
        honest = [client for client in order if client not in attackers][: len(places) - len(attacking)]
        return Selection([*honest, *attacking], selection.events)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the selector, if it has one."""
        return self.selector.state_dict() if isinstance(self.selector, Stateful) else {}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Hand a state back to the selector, if it has one."""
        if isinstance(self.selector, Stateful):
            self.selector.load_state_dict(dict(state))
