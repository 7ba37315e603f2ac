"""Evaluation by clients, as in FedAvg but without bad replies; and the mean of the metrics that clients report."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from mabrfl.errors import ConfigError
from mabrfl.flower.messages import ReplyMatcher, SentMessages, write_messages
from mabrfl.flower.node_identity import wait_for_nodes
from mabrfl.flower.problems import MalformedReply
from mabrfl.flower.reply_checks import num_examples
from mabrfl.recording.audit import safe_text
from mabrfl.rng import ClientId, uniforms

if TYPE_CHECKING:
    from mabrfl.flower.node_identity import Identify

log = logging.getLogger("flwr")

AggregateMetrics = Callable[[list[RecordDict], str], MetricRecord]

_MOST_KEYS = 100
_LONGEST_KEY = 100


class EvaluatingStrategy(Strategy):
    """The part of a strategy that has clients evaluate the model. Their answers change no reputation."""

    def __init__(
        self,
        *,
        seed: int,
        fraction_evaluate: float,
        min_evaluate_nodes: int,
        min_available_nodes: int,
        weighted_by_key: str,
        trust_num_examples: bool,
        arrayrecord_key: str,
        configrecord_key: str,
        evaluate_metrics_aggr_fn: AggregateMetrics | None,
        message_ttl: float | None,
        identify: Identify,
    ) -> None:
        if not 0 <= fraction_evaluate <= 1:
            raise ConfigError(f"fraction_evaluate must lie in [0, 1]; got {fraction_evaluate}")
        if message_ttl is not None and not message_ttl > 0:
            raise ConfigError(f"message_ttl must be positive; got {message_ttl}")
        self.seed = seed
        self.fraction_evaluate = fraction_evaluate
        self.min_evaluate_nodes = min_evaluate_nodes if fraction_evaluate else 0
        self.min_available_nodes = min_available_nodes
        self.weighted_by_key = weighted_by_key
        self.trust_num_examples = trust_num_examples
        self.arrayrecord_key = arrayrecord_key
        self.configrecord_key = configrecord_key
        self.evaluate_metrics_aggr_fn = evaluate_metrics_aggr_fn
        self.message_ttl = message_ttl
        self.identify = identify
        self._timeout = 3600.0
        self._offset = 0
        self._asked = SentMessages(0)

    @property
    def ttl(self) -> float:
        """Seconds after which a message expires."""
        return self._timeout if self.message_ttl is None else self.message_ttl

    def banned(self) -> Collection[ClientId]:
        """Return the identities that are invited to nothing."""
        return frozenset()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Choose the clients that evaluate, by seed and round, and write their messages."""
        number = self._offset + server_round
        self._asked = SentMessages(number)
        if not self.fraction_evaluate:
            return []
        least = max(self.min_available_nodes, self.min_evaluate_nodes)
        online = wait_for_nodes(grid, self.identify, least, self.banned)
        wanted = max(int(len(online.clients) * self.fraction_evaluate), self.min_evaluate_nodes)
        draws = uniforms(self.seed, "evaluate", number, online.clients)
        chosen = [online.clients[k] for k in np.argsort(draws, kind="stable")[:wanted]]
        log.info("configure_evaluate: sampled %d nodes (out of %d)", len(chosen), len(online.clients))
        settings = ConfigRecord({**config, "server-round": number})
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: settings})
        nodes = [online.node_of[client] for client in chosen]
        messages = write_messages(content, nodes, MessageType.EVALUATE, self.ttl)
        self._asked = SentMessages(number, len(online.clients), messages, chosen)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:  # noqa: ARG002
        """Average the reported metrics; bad and missing replies are left out."""
        if not self._asked.messages:
            return None
        contents, weights = [], []
        for reply in ReplyMatcher().match(list(replies), self._asked, {}):
            if reply.content is not None:
                try:
                    weights.append(num_examples(reply.content, self.weighted_by_key))
                except MalformedReply as malformed:
                    log.warning("\t> node %d: %s", reply.node, safe_text(malformed))
                else:
                    contents.append(reply.content)
        failures = len(self._asked.messages) - len(contents)
        log.info("aggregate_evaluate: received %d results and %d failures", len(contents), failures)
        if not contents:
            return None
        return self.averaged(contents, weights, self.evaluate_metrics_aggr_fn or mean_metrics)

    def averaged(
        self, contents: list[RecordDict], weights: Sequence[float], average: AggregateMetrics
    ) -> MetricRecord | None:
        """Return the mean of the clients' metrics, or the result of the user's own function."""
        if average is mean_metrics:
            return mean_metrics(contents, self.weighted_by_key, weights if self.trust_num_examples else None)
        try:
            averaged = average(contents, self.weighted_by_key)
            if not isinstance(averaged, MetricRecord):
                raise TypeError(f"the function returned {type(averaged).__name__}, not MetricRecord")
        except Exception as error:  # noqa: BLE001 (clients' metrics must not end the run through the user's function)
            cause = safe_text(f"{type(error).__name__}: {error}")
            log.warning("\t> the metrics could not be aggregated: %s", cause)
            return None
        return averaged


def mean_metrics(contents: Sequence[RecordDict], key: str, weights: Sequence[float] | None = None) -> MetricRecord:
    """Return the mean of each metric that more than half of the clients report, over its finite values.

    Parameters
    ----------
    contents
        Replies that hold one record of metrics each.
    key
        The name of the number of examples, which is left out.
    weights
        One per client; equal if left out.
    """
    values: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for content, weight in zip(contents, weights or [1.0] * len(contents), strict=True):
        record = next(iter(content.metric_records.values()))
        for name, value in list(record.items())[:_MOST_KEYS]:
            if name != key and len(name) <= _LONGEST_KEY and name.isprintable() and _is_finite(value):
                values[name].append((float(value), weight))  # type: ignore[arg-type] # just checked
    means = MetricRecord()
    for name, pairs in sorted(values.items()):
        if 2 * len(pairs) > len(contents):
            total = math.fsum(weight for _, weight in pairs)
            mean = math.fsum(value * (weight / total) for value, weight in pairs)
            if math.isfinite(mean):
                means[name] = mean
    return means


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer too long for a float
        return False
