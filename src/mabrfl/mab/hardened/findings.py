"""What the tests of a round found, and how it is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.mab.hardened.panel import Panel
from mabrfl.updates import Cohort, Evidence, Reason

Copies = list[NDArray[np.intp]]
"""Groups of clients that sent the same."""

_ALONE = 1


@dataclass
class Findings:
    """Results of the tests, for each member of the panel."""

    reasons: list[Reason]
    credit: NDArray[np.float64]
    group_size: NDArray[np.intp]
    nearest: NDArray[np.float64]
    rejected: NDArray[np.bool_]
    """Members that are rejected: they are not compared any further."""
    why: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What the test that rejected a member measured."""
    closest: dict[str, Any] = field(default_factory=dict)
    """The group that came closest to being rejected, or went farthest beyond."""
    events: list[str] = field(default_factory=list)

    @classmethod
    def none(cls, members: int) -> Findings:
        """Return the findings before any test: everybody is accepted."""
        return cls(
            reasons=["accepted"] * members,
            credit=np.ones(members),
            group_size=np.full(members, _ALONE, dtype=np.intp),
            nearest=np.full(members, np.nan),
            rejected=np.zeros(members, dtype=bool),
        )

    def reject(self, members: NDArray[np.intp], reason: Reason) -> None:
        """Reject these members."""
        for member in members:
            self.reasons[member] = reason
        self.rejected[members] = True

    def reject_outliers(self, members: NDArray[np.intp], why: dict[str, Any], copies: Copies) -> None:
        """Reject these clients, and with them all copies of what they sent."""
        for group in copies:
            if np.isin(group, members).any():
                members = np.union1d(members, group)
        self.credit[members] = 1.0
        self.reject(members, "outlier")
        self.why.update(dict.fromkeys(members.tolist(), why))


def evidence(cohort: Cohort, panel: Panel, findings: Findings, weights: NDArray[np.float64]) -> list[Evidence]:
    """Say, for each client, what the tests saw."""
    total = float((weights * cohort.norms).sum())
    return [
        {
            "norm": float(cohort.norms[k]),
            "trust": float(panel.trust[k]),
            "nearest": None if np.isnan(findings.nearest[k]) else float(findings.nearest[k]),
            "copies": int(findings.group_size[k]),
            "share": float(weights[k] * cohort.norms[k] / total) if total else 0.0,
            **findings.why.get(k, {}),
        }
        for k in range(len(cohort))
    ]


def facts(panel: Panel, findings: Findings, typical: float) -> dict[str, Any]:
    """Return the numbers about the round as a whole."""
    closest = {name: value for name, value in findings.closest.items() if name != "margin"}
    return {
        "panel": len(panel),
        "largest_residual_cosine": None if np.isnan(findings.nearest).all() else float(np.nanmax(findings.nearest)),
        "largest_copied_group": int(findings.group_size.max()),
        "typical_length": typical,
        **closest,
    }
