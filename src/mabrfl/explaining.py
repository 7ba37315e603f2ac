"""Verdicts in sentences: why a client was accepted or rejected, with the numbers and what they are compared with.

A verdict's evidence and a round's facts are plain numbers with names. Each function here reads the names that it knows
and gives one or two sentences, or none if they are missing. To explain a new kind of evidence, write a function
``Numbers -> str`` and add it to :data:`_SAYINGS` under the reasons that it explains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_OPENINGS: Mapping[str, str] = {
    "accepted": "Accepted",
    "sybil": "Rejected as a sybil (a copy of another client's update)",
    "outlier": "Rejected as an outlier",
    "malformed": "Rejected as malformed, before any comparison",
}
_SPECIAL = frozenset(
    [
        "trust",
        "nearest",
        "copies",
        "share",
        "weight",
        "max_cosine",
        "component_size",
        "cause",
        "separation",
        "separation_needed",
        "group_size",
        "group_cosine",
        "cosine_needed",
        "clip",
    ]
)
"""Names of evidence that have a sentence of their own below; any other number is compared with the other clients'."""
_UNLESS: Mapping[str, tuple[str, ...]] = {"norm": ("trust", "max_cosine"), "cosine": ("cosine_needed", "trust_score")}
"""Numbers that are not compared if one of these is there, too: what MAB-RFL decides by is another number."""
_CALLED: Mapping[str, str] = {
    "times_kept": "number of samples that kept it",
    "trust_score": "trust score (its cosine with the server's own update, at least 0)",
    "learning_rate": "weight before scaling",
    "share_of_tensors": "share of tensors in which it was kept",
    "median_cosine": "median cosine with the others",
    "positive": "share of positive signs",
    "negative": "share of negative signs",
    "first": "first principal component",
    "second": "second principal component",
    "chosen": "number of times it was chosen",
}
"""Evidence whose name is no noun, or says too little."""
_LIKE = "it would have been like"
_PLACES: Mapping[str, str] = {
    "first": " in the first layer",
    "last": " in the last layer",
    "labels": " in the part of the last layer that labels do not explain",
}


@dataclass(frozen=True)
class Numbers:
    """The numbers that a verdict can be explained by.

    Attributes
    ----------
    evidence, facts
        Of the client, and of the round.
    credit
        How much the verdict counts for the client's reputation.
    options
        Of the defense, if they are known.
    accepted
        The evidence of the accepted clients of the round, for comparison.
    """

    evidence: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    credit: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    accepted: Sequence[Mapping[str, Any]] = ()

    def get(self, name: str) -> Any:
        """Return a value of the client's evidence, or of the round's facts; None if neither has it."""
        return self.evidence.get(name, self.facts.get(name))

    def number(self, name: str) -> float | None:
        """Return a number of the client's evidence, or of the round's facts; None if neither has it."""
        value = self.get(name)
        return float(value) if _is_number(value) else None


def explain(
    reason: str,
    evidence: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    *,
    credit: float = 1.0,
    options: Mapping[str, Any] | None = None,
    accepted: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return why a client was accepted or rejected, in two or three sentences.

    Parameters
    ----------
    reason, evidence, credit
        Of the verdict.
    facts
        Of the round. Some rules have the numbers of a comparison there.
    options
        Of the defense, for the thresholds that are options.
    accepted
        The evidence of the accepted clients of the round: what this client's numbers are compared with.

    Examples
    --------
    >>> print(explain("outlier", {"distance": 3.25}, accepted=[{"distance": 1.0}, {"distance": 2.0}]))
    Rejected as an outlier: its distance is 3.25; the 2 accepted clients have 1 to 2. With 2 or less it would have been
    like them.
    """
    numbers = Numbers(evidence, facts or {}, credit, options or {}, accepted)
    sayings = [saying for tell in _SAYINGS.get(reason, _OWN) if (saying := tell(numbers))]
    opening = _OPENINGS.get(reason, f"Rejected as {reason}, a reason of the defense's own")
    said = " ".join(sayings)
    text = f"{opening}: {_within(said)}" if said else f"{opening}. The defense recorded no numbers for it."
    return " ".join([text, *filter(None, [_reputation(reason, credit)])])


def _copies(numbers: Numbers) -> str:
    """Preset ``hardened``: a group of updates with the same residual."""
    size, nearest = numbers.number("copies"), numbers.number("nearest")
    if size is None or size <= 1 or nearest is None:
        return ""
    threshold = numbers.options.get("copy_similarity")
    limit = f"; from {threshold:.2f} on they are copies" if _is_number(threshold) else ""
    less = f"a cosine below {threshold:.2f}" if _is_number(threshold) else "a smaller cosine"
    return (
        f"apart from what all updates share, its update and the most similar other one have a cosine of "
        f"{nearest:.2f}{limit}. {size:.0f} clients sent this copy, and at most one of them is used. "
        f"With {less} it would have been judged by itself."
    )


def _component(numbers: Numbers) -> str:
    """Presets ``paper`` and ``reference``: the largest connected component of the similarity graph."""
    cosine, threshold = numbers.number("max_cosine"), numbers.number("similarity_threshold")
    size = numbers.number("component_size")
    if cosine is None or threshold is None or size is None:
        return ""
    return (
        f"its update and the most similar other one have a cosine of {cosine:.2f}, and clients from {threshold:.2f} on "
        f"are linked in this round; it belongs to the largest group of linked clients, which has {size:.0f}. "
        f"With every cosine below {threshold:.2f} it would have passed this test."
    )


def _foreign_group(numbers: Numbers) -> str:
    """Preset ``hardened``: a minority whose mean update points elsewhere."""
    separation, needed = numbers.number("separation"), numbers.number("separation_needed")
    own = "separation" in numbers.evidence
    if separation is None or needed is None or separation < needed or (not own and "cosine" in numbers.evidence):
        return ""
    size, cosine = numbers.number("group_size"), numbers.number("group_cosine")
    group = f"a group of {size:.0f} clients" if size is not None else "a group"
    which = "" if own else " of the group that differed most"
    toward = f", and the cosine of the two means is {cosine:.2f}" if cosine is not None else ""
    return (
        f"it belongs to {group} whose mean update points elsewhere than that of the others{_where(numbers)}. The "
        f"separation{which} is {separation:.2f} (0 is none){toward}. In this round {needed:.2f} is enough to reject "
        f"this group, which has less than half of all reputation. With less it would have been accepted."
    )


def _opposed(numbers: Numbers) -> str:
    """Preset ``hardened``: one client whose update points against the others'."""
    cosine, needed = numbers.number("cosine"), numbers.number("cosine_needed")
    if cosine is None or needed is None:
        return ""
    return (
        f"its update{_with_copies(numbers)} points against those of the others{_where(numbers)}: the cosine with their "
        f"mean is {cosine:.2f}, and {needed:.2f} or less is rejected. Above {needed:.2f} it would have been accepted."
    )


def _with_copies(numbers: Numbers) -> str:
    size = numbers.number("copies")
    return "" if size is None or size <= 1 else f", which {size:.0f} clients sent and which counts once,"


def _smaller_cluster(numbers: Numbers) -> str:
    """Presets ``paper`` and ``reference``: the smaller one of two opposed clusters."""
    cosine, sizes = numbers.number("cluster_cosine"), numbers.get("cluster_sizes")
    if cosine is None or numbers.evidence.get("cluster") not in ("smaller", "equal"):
        return ""
    alpha = numbers.options.get("alpha")
    limit = f"; alpha = {alpha:.2f} or less is rejected" if _is_number(alpha) else ""
    parts = f"clusters of {sizes[0]} and {sizes[1]} clients" if _is_pair(sizes) else "clusters"
    which = "smaller one" if numbers.evidence["cluster"] == "smaller" else "first of two equal ones"
    return (
        f"the momenta (a client's updates, older ones fading) fall into two {parts} with opposed means "
        f"(cosine {cosine:.2f}{limit}), and it is in the {which}. "
        "In the other cluster, or with means that are less opposed, it would have been accepted."
    )


def _cause(numbers: Numbers) -> str:
    """Intake: an update that is none."""
    cause = numbers.get("cause")
    would = "A finite update that is not zero and fits the model would have been compared with the others."
    return f"{cause}. {would}" if cause else ""


def _use(numbers: Numbers) -> str:
    """Say what an accepted update counts for in the step."""
    share, weight, clip = (numbers.number(name) for name in ("share", "weight", "clip"))
    if share is not None:
        return f"it makes up {100 * share:.1f} % of the step."
    if weight is None:
        return "" if clip is None else f"it is used, scaled to {100 * clip:.0f} % of its length."
    used = f"it is used with weight {weight:.3g}." if weight else "it is not used in the step, which is no blame."
    clipped = "" if clip is None or clip >= 1 else f" Its difference from the centre was clipped to {100 * clip:.0f} %."
    return used + clipped


def _tests_passed(numbers: Numbers) -> str:
    """Say how far an accepted update was from a rejection."""
    parts = []
    nearest, most = numbers.number("nearest"), numbers.number("max_cosine")
    threshold, limit = numbers.options.get("copy_similarity"), numbers.number("similarity_threshold")
    if nearest is not None and (numbers.number("copies") or 1) <= 1:
        copy = f"; copies have {threshold:.2f} or more" if _is_number(threshold) else ""
        parts.append(
            "Apart from what all updates share, its update and the most similar other one have a cosine of "
            f"{nearest:.2f}{copy}."
        )
    if most is not None and limit is not None:
        parts.append(f"Its largest cosine with another update is {most:.2f}; the threshold is {limit:.2f}.")
    separation, needed = numbers.number("separation"), numbers.number("separation_needed")
    if separation is not None and needed is not None and separation < needed:
        parts.append(
            f"No group of clients differed enough to be rejected: the largest separation was {separation:.2f}, and "
            f"{needed:.2f} is needed."
        )
    return " ".join(parts)


def _beside_the_accepted(numbers: Numbers) -> str:
    """Any other number, beside those of the accepted clients."""
    parts = []
    for name, value in numbers.evidence.items():
        if name in _SPECIAL or not _is_number(value) or numbers.evidence.keys() & {*_UNLESS.get(name, ())}:
            continue
        others = [float(other[name]) for other in numbers.accepted if _is_number(other.get(name))]
        parts.append(f"Its {_CALLED.get(name, name.replace('_', ' '))} is {_beside(value, others)}")
    return " ".join(parts)


def _beside(value: float, others: Sequence[float]) -> str:
    """Return a client's number, those of the accepted clients, and what would have been like them."""
    if not others:
        return f"{_short(value)}."
    low, high = min(others), max(others)
    who = f"the {len(others)} accepted clients have" if len(others) > 1 else "the accepted client has"
    beside = f"{_short(value)}; {who} {_short(low) if low == high else f'{_short(low)} to {_short(high)}'}."
    if low <= value <= high:
        return beside
    limit = f"{_short(high)} or less" if value > high else f"{_short(low)} or more"
    return f"{beside} With {limit} {_LIKE} {'them' if len(others) > 1 else 'it'}."


def _compared(numbers: Numbers) -> str:
    """Any other number of a rejected client; if none is unlike the others, that the rule saw all together."""
    said = _beside_the_accepted(numbers)
    if said and numbers.accepted and _LIKE not in said:
        return f"{said} None of this is unlike them: the defense compares the clients with each other, as a group."
    if not said and numbers.number("weight") == 0:
        return "it is not in the group of clients that the defense averages. There is no number of it alone."
    return said


Saying = Callable[[Numbers], str]
_SAYINGS: Mapping[str, Sequence[Saying]] = {
    "accepted": (_use, _tests_passed, _beside_the_accepted),
    "sybil": (_copies, _component, _compared),
    "outlier": (_foreign_group, _opposed, _smaller_cluster, _compared),
    "malformed": (_cause,),
}
"""What can be said about each reason, in order."""
_OWN: Sequence[Saying] = (_cause, _compared)


def _reputation(reason: str, credit: float) -> str:
    """Say what the verdict does to the reputation, if that is not what its reason says."""
    if credit == 0:
        return "The verdict does not change its reputation."
    if reason == "accepted" and credit < 0:
        return f"Others sent the same: only this is used, and being copied counts {-credit:.2f} against its reputation."
    if reason != "accepted" and 0 < credit < 1:
        return f"The rejection counts only {credit:.2f} against its reputation: it may be the one that was copied."
    return ""


def _where(numbers: Numbers) -> str:
    block, over = numbers.get("block"), numbers.get("over")
    place = "" if block in (None, "whole") else _PLACES.get(str(block), f" in the block '{block}' of the model")
    times = {"rounds": " over the last rounds", "this round": " in this round"}
    return place + times.get(str(over), "")


def _within(sentence: str) -> str:
    """Return a sentence as it stands after a colon; NaN stays NaN."""
    word, _, _ = sentence.partition(" ")
    return sentence if word != word.capitalize() else sentence[0].lower() + sentence[1:]


def _short(value: float) -> str:
    return f"{value:.3g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2
