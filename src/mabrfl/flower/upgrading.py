"""Loading the state of a defense whose settings an operator has changed, so that the reputations are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mabrfl.defense import Defense
from mabrfl.errors import StateError


def load_changed(defense: Defense, state: Mapping[str, Any]) -> str:
    """Load a state that was saved with other settings; return a note on what could not be kept, or nothing.

    Reputations and progress are always kept. What rule and selector remember is kept if they accept it.

    Raises
    ------
    StateError
        If even the reputations do not fit.
    """
    if not isinstance(defense, Defense):  # the user's own
        defense.load_state_dict(state)
        return ""
    fresh = defense.state_dict()
    own = {"name": fresh["name"], "seed": fresh["seed"]}
    parts = {name: _with_options(state[name], fresh[name]) for name in ("rule", "selector")}
    try:
        defense.load_state_dict({**state, **own, **parts})
    except StateError as error:
        kept = {name: state[name] for name in ("progress", "beliefs")}
        defense.load_state_dict({**fresh, **kept})
        return f"reputations are kept; what the rule remembered of the clients' updates is not: {error}"
    return ""


def _with_options(saved: Any, fresh: Any) -> Any:
    """Return a saved part with the present options, if it holds options."""
    if isinstance(saved, dict) and isinstance(fresh, dict) and "options" in fresh:
        return {**saved, "options": fresh["options"]}
    return saved
