"""The story of a client over the rounds of a run, in sentences: invited, accepted, rejected, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from mabrfl.config import load_config, resolve
from mabrfl.errors import ConfigError, suggest
from mabrfl.recording.folder import CONFIG
from mabrfl.recording.reading import read_rounds
from mabrfl.recording.record import RoundRecord
from mabrfl.rng import ClientId
from mabrfl.updates import canonical, explain_among

_SELECTORS: Mapping[str, str] = {
    "acs": "The selector acs invites it with this probability; this time it was not drawn",
    "thompson-top": "The selector thompson-top invites the clients with the largest random draws around this value",
    "budgeted": "The selector budgeted invites the clients with the largest random draws around this value",
    "uniform": "The selector uniform draws at random, whatever the reputation",
}
"""What a selector does with the reputation B / (B + M) of a client."""


@dataclass(frozen=True)
class RunStory:
    """The records of a run and the settings that explain them.

    Attributes
    ----------
    records
        One per round, in order.
    selector
        Its name; empty if it is not known.
    options
        Of the defense, for the thresholds that are options.
    truth
        Whether the records know who attacks, as those of a simulation do.
    """

    records: Sequence[RoundRecord]
    selector: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    truth: bool = True

    @property
    def clients(self) -> list[ClientId]:
        """Every client of the run, in canonical order."""
        return canonical({client for record in self.records for client in (*record.reputation, *record.selected)})

    def find(self, text: str) -> ClientId:
        """Return the client of this name or number, or the one whose key begins with the text.

        Raises
        ------
        ConfigError
            If there is none, or more than one.
        """
        names = {str(client): client for client in self.clients}
        exact = [names[name] for name in (text, f"key:{text}", f"node:{text}") if name in names]
        begins = [
            client for name, client in names.items() if name.startswith((f"key:{text}", f"{text}")) and ":" in name
        ]
        found = exact[:1] or begins
        if len(found) != 1:
            count = f"{len(found)} clients begin with '{text}'" if found else f"unknown client '{text}'"
            raise ConfigError(f"{count}{suggest(text, list(names)[:20]) if not found else ''}")
        return found[0]

    def record(self, number: int) -> RoundRecord:
        """Return a round.

        Raises
        ------
        ConfigError
            If the run has no such round.
        """
        for record in self.records:
            if record.round == number:
                return record
        last = f"rounds {self.records[0].round} to {self.records[-1].round}" if self.records else "no rounds"
        raise ConfigError(f"there is no round {number}; the run has {last}")

    def sentence(self, client: ClientId, number: int) -> str:
        """Return what happened to a client in a round, and why."""
        record = self.record(number)
        if client in record.verdicts:
            why = explain_among(client, record.verdicts, record.facts, self.options)
            return f"{why} {self._change(client, record)}".rstrip()
        if client in record.selected:
            return "Invited, but no update of it was judged: it sent none, or the whole round was not judged."
        return self._not_invited(client, record)

    def summary(self, client: ClientId) -> str:
        """Return a client's whole run in two sentences."""
        verdicts = [record.verdicts[client] for record in self.records if client in record.verdicts]
        reasons = Counter(verdict.reason for verdict in verdicts if not verdict.accepted)
        invited = sum(client in record.selected for record in self.records)
        rejected = f"rejected in {sum(reasons.values())}"
        rejected += f" ({', '.join(f'{reason} {count}' for reason, count in reasons.most_common())})" if reasons else ""
        accepted = sum(verdict.accepted for verdict in verdicts)
        role = self.role(client)
        text = (
            f"Client {client}{f', {role},' if role else ''} was invited in {invited} of {len(self.records)} rounds, "
            f"accepted in {accepted} and {rejected}."
        )
        return f"{text} {self._standing(client)}".rstrip()

    def role(self, client: ClientId) -> str:
        """Return what a client is in truth; an empty text if that is not known."""
        if not self.truth:
            return ""
        attacks = any(client in record.attackers for record in self.records)
        return "in truth an attacker" if attacks else "in truth honest"

    def chapters(self, client: ClientId) -> list[tuple[str, str]]:
        """Return the rounds in which the same happened to a client, and what; why is said of the last of them."""
        states = [(record.round, self._state(client, record)) for record in self.records]
        result = []
        for _, group in groupby(states, key=lambda pair: pair[1]):
            numbers = [number for number, _ in group]
            rounds = f"round {numbers[0]}" if len(numbers) == 1 else f"rounds {numbers[0]} to {numbers[-1]}"
            in_last = "" if len(numbers) == 1 else f"in round {numbers[-1]}: "
            result.append((rounds, in_last + self.sentence(client, numbers[-1])))
        return result

    def _state(self, client: ClientId, record: RoundRecord) -> str:
        if client in record.verdicts:
            return record.verdicts[client].reason
        return "invited" if client in record.selected else "not invited"

    def _before(self, client: ClientId, record: RoundRecord) -> tuple[float, float] | None:
        earlier = [each for each in self.records if each.round < record.round and client in each.reputation]
        return earlier[-1].reputation[client] if earlier else None

    def _change(self, client: ClientId, record: RoundRecord) -> str:
        before, after = self._before(client, record), record.reputation.get(client)
        if after is None or after == before:
            return ""
        trust = record.verdicts[client].evidence.get("trust")
        start = _percent(before) if before is not None else f"{100 * trust:.0f} %" if isinstance(trust, float) else ""
        was = f"from {start} " if start else ""
        return f"Its reputation went {was}to {_percent(after)} {_counts(after)}."

    def _not_invited(self, client: ClientId, record: RoundRecord) -> str:
        before = self._before(client, record)
        if before is None:
            return f"Not invited: it had not been judged yet, and {self._chooser()} did not choose it."
        does = _SELECTORS.get(self.selector, "The selector did not choose it")
        return f"Not invited: its reputation was {_percent(before)} {_counts(before)}. {does}."

    def _chooser(self) -> str:
        return f"the selector {self.selector}" if self.selector else "the selector"

    def _standing(self, client: ClientId) -> str:
        last = [record.reputation[client] for record in self.records if client in record.reputation]
        if not last:
            return ""
        return f"Its reputation at the end is {_percent(last[-1])}."


def story_of_run(folder: Path) -> RunStory:
    """Return the story of the run in a folder; without the thresholds if its configuration cannot be read."""
    records = read_rounds(folder).records
    try:
        config = resolve(load_config(folder / CONFIG))
    except ConfigError:
        return RunStory(records)
    return RunStory(records, config.selector, config.defense_options)


def _percent(counts: tuple[float, float]) -> str:
    total = sum(counts)
    return f"{100 * counts[0] / total:.0f} %" if total > 0 else "unknown"


def _counts(counts: tuple[float, float]) -> str:
    return f"(B {counts[0]:.2f} for it, M {counts[1]:.2f} against it)"
