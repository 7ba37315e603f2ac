"""Beta beliefs about clients: how often each was judged benign (B) and malicious (M)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import ConfigError, StateError
from mabrfl.rng import ClientId
from mabrfl.updates import Verdict, as_client_id, canonical

_PAIR = 2


@dataclass(frozen=True)
class Reaction:
    """The change of beliefs by a verdict; the default is the paper's rule, which never forgets.

    With s, the absolute value of the verdict's ``credit``, an acceptance gives ``B = B * keep_good**s + s`` and
    ``M = M * forgive**s``. A rejection, or an acceptance on suspicion (negative credit), gives ``B = B * strike**s``
    and ``M = M + s``. So B stays below ``1 / (1 - keep_good)``, and a few bad rounds in a row outweigh it.
    """

    keep_good: float = 1.0
    strike: float = 1.0
    forgive: float = 1.0

    def __post_init__(self) -> None:
        for name in ("keep_good", "strike", "forgive"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie in (0, 1]; got {getattr(self, name)}")

    def __call__(self, benign: float, malicious: float, verdict: Verdict) -> tuple[float, float]:
        """Return B and M after a verdict."""
        credit = abs(verdict.credit)
        if verdict.accepted and verdict.credit >= 0:
            return benign * self.keep_good**credit + credit, max(
                malicious * self.forgive**credit, min(malicious, _LEAST)
            )
        return max(benign * self.strike**credit, min(benign, _LEAST)), malicious + credit


_LEAST = 0.01
"""Counts below this are not scaled down further: beliefs never reach certainty."""


class Beliefs:
    """B_k and M_k of every client ever seen (paper, Alg. 2 lines 1 and 12-14).

    Parameters
    ----------
    prior_benign, prior_malicious
        The belief about a client before its first verdict; Beta(1, 1) is uniform.
    newcomer
        The same for clients that join later, if they start with less trust.
    reaction
        How a verdict changes the beliefs.

    Examples
    --------
    >>> beliefs = Beliefs()
    >>> beliefs.reward({"a": Verdict(True, "accepted"), "b": Verdict(False, "sybil")})
    >>> beliefs.as_dict()
    {'a': (2.0, 1.0), 'b': (1.0, 2.0)}
    """

    def __init__(
        self,
        *,
        prior_benign: float = 1.0,
        prior_malicious: float = 1.0,
        newcomer: tuple[float, float] | None = None,
        reaction: Reaction | None = None,
    ) -> None:
        benign, malicious = newcomer or (prior_benign, prior_malicious)
        for name, value in (
            ("prior_benign", prior_benign),
            ("prior_malicious", prior_malicious),
            ("newcomer_benign", benign),
            ("newcomer_malicious", malicious),
        ):
            if not 0 < value < np.inf:
                raise ConfigError(f"{name} must be positive and finite; got {value}")
        self._prior = (float(prior_benign), float(prior_malicious))
        self._newcomer = (float(benign), float(malicious))
        self._react = reaction or Reaction()
        self._counts: dict[ClientId, tuple[float, float]] = {}

    def know(self, ids: Iterable[ClientId]) -> None:
        """Add unknown clients: the first ones with the prior belief, later ones as newcomers."""
        prior = self._newcomer if self._counts else self._prior
        for client in ids:
            self._counts.setdefault(client, prior)

    def forget(self, client: ClientId) -> None:
        """Forget every judgement of one client, which then has the counts of a client that joins now."""
        if client in self._counts:
            self._counts[client] = self._newcomer

    def rename(self, old: ClientId, new: ClientId) -> None:
        """Give the counts of a client to another id; the old id is unknown then."""
        if old in self._counts:
            self._counts[new] = self._counts.pop(old)

    def reset(self) -> None:
        """Forget every judgement; the clients stay known."""
        self._counts = dict.fromkeys(self._counts, self._prior)

    def reward(self, verdicts: Mapping[ClientId, Verdict]) -> None:
        """Give reward 1 (B + 1) to the accepted and reward 0 (M + 1) to the rejected, as the reaction says."""
        self.know(verdicts)
        for client, verdict in verdicts.items():
            self._counts[client] = self._react(*self._counts[client], verdict)

    def of(self, ids: Iterable[ClientId]) -> NDArray[np.float64]:
        """Return the ``(n, 2)`` counts (B, M) of these clients; unknown ones have the counts they would start with."""
        prior = self._newcomer if self._counts else self._prior
        return np.array([self._counts.get(client, prior) for client in ids], dtype=np.float64).reshape(-1, 2)

    def as_dict(self) -> dict[ClientId, tuple[float, float]]:
        """Return ``{id: (B, M)}`` in canonical order."""
        return {client: self._counts[client] for client in canonical(self._counts)}

    def state_dict(self) -> dict[str, Any]:
        """Return the beliefs as plain lists and arrays."""
        ids = canonical(self._counts)
        return {"ids": ids, "counts": self.of(ids)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore beliefs; a malformed state is refused as a whole."""
        ids = [as_client_id(client) for client in state["ids"]]
        counts = np.asarray(state["counts"], dtype=np.float64)
        if counts.shape != (len(ids), _PAIR) or len(set(ids)) != len(ids):
            raise StateError(f"beliefs need one (B, M) pair per distinct id; got {len(ids)} ids, shape {counts.shape}")
        if not np.all((counts > 0) & np.isfinite(counts)):
            raise StateError("beliefs must be positive and finite")
        self._counts = {client: (float(b), float(m)) for client, (b, m) in zip(ids, counts, strict=True)}
