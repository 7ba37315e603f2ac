"""Beta beliefs about clients: how often each was found benign (B) and malicious (M)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import ConfigError, StateError
from mabrfl.rng import ClientId
from mabrfl.updates import Verdict, as_client_id, canonical

_PAIR = 2


class Beliefs:
    """B_k and M_k of every client ever seen (paper, Alg. 2 lines 1 and 12-14).

    Parameters
    ----------
    prior_benign, prior_malicious
        What is believed of a client before it was ever judged; Beta(1, 1) is "anything".

    Examples
    --------
    >>> beliefs = Beliefs()
    >>> beliefs.reward({"a": Verdict(True, "accepted"), "b": Verdict(False, "sybil")})
    >>> beliefs.as_dict()
    {'a': (2.0, 1.0), 'b': (1.0, 2.0)}
    """

    def __init__(self, *, prior_benign: float = 1.0, prior_malicious: float = 1.0) -> None:
        for name, value in (("prior_benign", prior_benign), ("prior_malicious", prior_malicious)):
            if not 0 < value < np.inf:
                raise ConfigError(f"{name} must be positive and finite; got {value}")
        self._prior = (float(prior_benign), float(prior_malicious))
        self._counts: dict[ClientId, tuple[float, float]] = {}

    def know(self, ids: Iterable[ClientId]) -> None:
        """Add clients that were not known before, with the prior belief."""
        for client in ids:
            self._counts.setdefault(client, self._prior)

    def reset(self) -> None:
        """Forget every judgement; the clients stay known."""
        self._counts = dict.fromkeys(self._counts, self._prior)

    def reward(self, verdicts: Mapping[ClientId, Verdict]) -> None:
        """Give reward 1 (B + 1) to the accepted and reward 0 (M + 1) to the rejected."""
        for client, verdict in verdicts.items():
            benign, malicious = self._counts.get(client, self._prior)
            self._counts[client] = (benign + 1, malicious) if verdict.accepted else (benign, malicious + 1)

    def of(self, ids: Iterable[ClientId]) -> NDArray[np.float64]:
        """Return the ``(n, 2)`` counts (B, M) of these clients; the prior for unknown ones."""
        return np.array([self._counts.get(client, self._prior) for client in ids], dtype=np.float64).reshape(-1, 2)

    def as_dict(self) -> dict[ClientId, tuple[float, float]]:
        """Return ``{id: (B, M)}`` in canonical order."""
        return {client: self._counts[client] for client in canonical(self._counts)}

    def state_dict(self) -> dict[str, Any]:
        """Return the beliefs as plain lists and arrays."""
        ids = canonical(self._counts)
        return {"ids": ids, "counts": self.of(ids)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore beliefs; anything malformed is refused as a whole."""
        ids = [as_client_id(client) for client in state["ids"]]
        counts = np.asarray(state["counts"], dtype=np.float64)
        if counts.shape != (len(ids), _PAIR) or len(set(ids)) != len(ids):
            raise StateError(f"beliefs need one (B, M) pair per distinct id; got {len(ids)} ids, shape {counts.shape}")
        if not np.all((counts > 0) & np.isfinite(counts)):
            raise StateError("beliefs must be positive and finite")
        self._counts = {client: (float(b), float(m)) for client, (b, m) in zip(ids, counts, strict=True)}
