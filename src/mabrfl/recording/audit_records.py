"""The rows of a Flower strategy's audit as records of rounds, so that both are read and explained in the same way."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from mabrfl.recording.audit import valid_rows
from mabrfl.recording.record import RoundRecord, is_round
from mabrfl.rng import ClientId
from mabrfl.updates import Verdict


def verdict_of(row: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict in a row about a reply; None if nothing was judged: no reply, or too few of them."""
    kind = row.get("verdict")
    if kind == "quarantined":
        cause = f"{row.get('reason')}: {row.get('detail', '')}".rstrip(": ")
        return Verdict(False, "malformed", {"cause": cause}, credit=1.0 if row.get("blamed") else 0.0)
    if kind not in ("accepted", "rejected"):
        return None
    credit, evidence = row.get("credit", 1.0), row.get("evidence")
    return Verdict(
        kind == "accepted",
        str(row.get("reason")),
        evidence if isinstance(evidence, dict) else {},
        float(credit) if _is_number(credit) else 1.0,
    )


def records_of_audit(rows: Iterable[Mapping[str, Any]]) -> list[RoundRecord]:
    """Return one record per round with valid rows; accuracies are NaN, since the audit does not have them."""
    decisions = [
        row for row in valid_rows(rows) if row.get("kind") in ("reply", "round") and is_round(row.get("round"))
    ]
    reputation: dict[ClientId, tuple[float, float]] = {}
    records = []
    for number, group in groupby(decisions, key=lambda row: int(row["round"])):
        selected: list[ClientId] = []
        verdicts: dict[ClientId, Verdict] = {}
        closing: Mapping[str, Any] = {}
        for row in group:
            client = row.get("client")
            if row["kind"] == "round":
                closing = row
            elif isinstance(client, int | str):
                selected.append(client)
                if (verdict := verdict_of(row)) is not None:
                    verdicts[client] = verdict
                if (after := _pair(row.get("reputation_after"))) is not None:
                    reputation[client] = after
        records.append(
            RoundRecord(
                round=number,
                accuracy=math.nan,
                loss=math.nan,
                selected=tuple(dict.fromkeys(selected)),
                verdicts=verdicts,
                reputation=dict(reputation),
                events=tuple(map(str, events)) if isinstance(events := closing.get("events"), list) else (),
                facts=facts if isinstance(facts := closing.get("facts"), dict) else {},
            )
        )
    return records


def _pair(value: Any) -> tuple[float, float] | None:
    """Return B and M; None for anything else that a line may hold."""
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(map(_is_number, numbers)):
        return None
    return float(numbers[0]), float(numbers[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
