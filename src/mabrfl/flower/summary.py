"""What a strategy logs, in the style of Flower's own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mabrfl.flower.rows import MOST_EVENTS, Told, quarantined
from mabrfl.flower.state import hash_of
from mabrfl.recording.audit import safe_text

if TYPE_CHECKING:
    from mabrfl.flower.strategy import RobustStrategy

log = logging.getLogger("flwr")

_MOST_LINES = 10
_SHORT = 20


def show(strategy: RobustStrategy) -> None:
    """Log a strategy's settings."""
    told = strategy.description["defense"]
    preset = f" (preset {told['preset']})" if told["preset"] else ""
    lines = [
        "├──> Defense:",
        f"│\t├──Rule: {told['name']}{preset}",
        f"│\t├──Selector: {_called(told['selector'])}",
        f"│\t├──Claimed example counts: {'believed' if strategy.trust_num_examples else 'ignored'}",
        f"│\t└──Seed: {told['seed']}",
        "├──> State:",
        f"│\t├──Folder: {strategy.state_dir or 'none: nothing survives this run'}",
        f"│\t├──Configuration: {hash_of(strategy.config())[:_SHORT]}",
        f"│\t└──Nodes are known by: {_called(strategy.description['identify'])}",
        "├──> Sampling:",
        f"│\t├──Fraction: train (by the selector) | evaluate ({strategy.fraction_evaluate:.2f})",
        f"│\t├──Minimum nodes: train ({strategy.min_train_nodes}) | evaluate ({strategy.min_evaluate_nodes})",
        f"│\t└──Minimum available nodes: {strategy.min_available_nodes}",
        "└──> Keys in records:",
        f"\t├── Number of examples: '{strategy.weighted_by_key}'",
        f"\t├── ArrayRecord key: '{strategy.arrayrecord_key}'",
        f"\t└── ConfigRecord key: '{strategy.configrecord_key}'",
    ]
    for line in lines:
        log.info("\t%s", line)


def _called(told: Any) -> str:
    """Return the name of what is described, without its module."""
    while isinstance(told, Mapping):
        told = next(iter(told.values()), None)
    return "its own" if told is None else str(told).rpartition(":")[2]


def show_round(told: Told, figures: Mapping[str, Any]) -> None:
    """Log a round: how many replies of which kind, who was set aside and why, and what happened besides."""
    log.info(
        "aggregate_train: accepted %d, rejected %d (sybil %d, outlier %d), quarantined %d, errors %d, missing %d",
        figures["replies-accepted"],
        figures["replies-sybil"] + figures["replies-outlier"],
        figures["replies-sybil"],
        figures["replies-outlier"],
        figures["replies-quarantined"],
        figures["replies-error"],
        figures["replies-missing"],
    )
    set_aside = quarantined(told)
    for arrival, problem in set_aside[:_MOST_LINES]:
        who = "unknown" if arrival.client is None else safe_text(arrival.client, _SHORT)
        blame = "blamed" if told.charged(arrival, problem) else "not blamed"
        log.warning(
            "\t> %s (node %d): %s: %s [%s]", who, arrival.node, problem.reason, safe_text(problem.detail), blame
        )
    if len(set_aside) > _MOST_LINES:
        log.warning("\t> and %d more", len(set_aside) - _MOST_LINES)
    for event in told.events[:MOST_EVENTS]:
        log.info("\t> %s", safe_text(event))
    if len(told.events) > MOST_EVENTS:
        log.info("\t> and %d more events", len(told.events) - MOST_EVENTS)
