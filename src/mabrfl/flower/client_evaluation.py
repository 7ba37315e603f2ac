"""Evaluation by clients: as in FedAvg, but a bad reply costs nothing but itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from mabrfl.errors import ConfigError
from mabrfl.flower.dispatch import Dispatch, Mailroom, write_messages
from mabrfl.flower.metrics import AggregateMetrics, mean_metrics, num_examples
from mabrfl.flower.node_identity import call_roll
from mabrfl.flower.problems import Malformed
from mabrfl.recording.audit import safe_text
from mabrfl.rng import uniforms

if TYPE_CHECKING:
    from mabrfl.flower.node_identity import Identify

log = logging.getLogger("flwr")


class EvaluatingStrategy(Strategy):
    """The half of a strategy that asks clients how good the model is. Nobody is judged by the answer."""

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
        self._asked = Dispatch(0)

    @property
    def ttl(self) -> float:
        """Seconds after which a message is void."""
        return self._timeout if self.message_ttl is None else self.message_ttl

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Choose who evaluates, by the seed and the round, and write to them."""
        number = self._offset + server_round
        self._asked = Dispatch(number)
        if not self.fraction_evaluate:
            return []
        roster = call_roll(grid, self.identify, max(self.min_available_nodes, self.min_evaluate_nodes))
        wanted = max(int(len(roster.clients) * self.fraction_evaluate), self.min_evaluate_nodes)
        draws = uniforms(self.seed, "evaluate", number, roster.clients)
        chosen = [roster.clients[k] for k in np.argsort(draws, kind="stable")[:wanted]]
        log.info("configure_evaluate: sampled %d nodes (out of %d)", len(chosen), len(roster.clients))
        told = ConfigRecord({**config, "server-round": number})
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: told})
        nodes = [roster.node_of[client] for client in chosen]
        messages = write_messages(content, nodes, MessageType.EVALUATE, self.ttl)
        self._asked = Dispatch(number, len(roster.clients), messages, chosen)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:  # noqa: ARG002
        """Average what was reported; replies that are bad or missing are left out."""
        if not self._asked.messages:
            return None
        contents, weights = [], []
        for arrival in Mailroom().sort(list(replies), self._asked, {}):
            if arrival.content is not None:
                try:
                    weights.append(num_examples(arrival.content, self.weighted_by_key))
                except Malformed as found:
                    log.warning("\t> node %d: %s", arrival.node, safe_text(found))
                else:
                    contents.append(arrival.content)
        failures = len(self._asked.messages) - len(contents)
        log.info("aggregate_evaluate: received %d results and %d failures", len(contents), failures)
        if not contents:
            return None
        return self.averaged(contents, weights, self.evaluate_metrics_aggr_fn or mean_metrics)

    def averaged(
        self, contents: list[RecordDict], weights: Sequence[float], average: AggregateMetrics
    ) -> MetricRecord | None:
        """Return the mean of the clients' metrics, or what the user's own function makes of them."""
        if average is mean_metrics:
            return mean_metrics(contents, self.weighted_by_key, weights if self.trust_num_examples else None)
        try:
            averaged = average(contents, self.weighted_by_key)
            if not isinstance(averaged, MetricRecord):
                raise TypeError(f"the function returned {type(averaged).__name__}, not MetricRecord")
        except Exception as error:  # noqa: BLE001 (clients' metrics reach the user's function: they must not end the run)
            told = safe_text(f"{type(error).__name__}: {error}")
            log.warning("\t> the metrics could not be aggregated: %s", told)
            return None
        return averaged
