"""Any defense of the catalogue as a Flower strategy: messages in and out, the mathematics is the library's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from mabrfl.checks import check_whole
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError, StateError
from mabrfl.flower import summary
from mabrfl.flower.client_evaluation import EvaluatingStrategy
from mabrfl.flower.contract import Contract
from mabrfl.flower.defenses import FRACTION_TRAIN, describe, refuse_undescribed, strategy_defense
from mabrfl.flower.describing import described
from mabrfl.flower.dispatch import Dispatch, Mailroom, write_messages
from mabrfl.flower.judging import Desk, Judgement, judge, unpack
from mabrfl.flower.keeper import FORMAT, Keeper
from mabrfl.flower.metrics import AggregateMetrics, mean_metrics
from mabrfl.flower.node_identity import by_public_key, call_roll
from mabrfl.flower.reply_grid import OneByOneGrid
from mabrfl.flower.rows import Told, audit_rows, figures, metric_record
from mabrfl.flower.saved_model import BY_CLIENTS, BY_SERVER
from mabrfl.flower.schema import BUFFER_SUFFIXES
from mabrfl.protocols import Selector

if TYPE_CHECKING:
    from mabrfl.flower.node_identity import Identify

log = logging.getLogger("flwr")

_NONE: Mapping[str, Any] = {}

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class RobustStrategy(EvaluatingStrategy):
    """A Flower strategy that asks a defense of mabrfl whom to invite, whom to believe, and where to move.

    Every reply is checked alone against the server's own model. Bad content is quarantined and blamed; an error, a
    late or a missing reply is recorded and never blamed. With ``state_dir`` everything survives a restart.

    Parameters
    ----------
    defense
        A name of ``mabrfl list defenses``, ``module:Name``, or a :class:`mabrfl.Defense`.
    selector
        A name of ``mabrfl list selectors``, ``module:Name``, or a selector; the defense's own by default.
    defense_options, selector_options
        Arguments of their constructors.
    preset, dataset
        Of MAB-RFL; see :class:`mabrfl.MabRfl`. The library's default preset if left out.
    num_malicious_nodes
        What rules that need the number of attackers are told, for all nodes together.
    seed
        Root of all random choices of the server; 0, or that of a defense that is an object, if left out.
    fraction_train
        Not taken: the selector decides who trains.
    fraction_evaluate, min_evaluate_nodes, evaluate_metrics_aggr_fn
        As in FedAvg.
    min_train_nodes
        With fewer usable replies than this nobody is judged and the model stays as it is.
    min_available_nodes
        A round begins when so many nodes are online.
    weighted_by_key
        The number of examples in each reply's MetricRecord. It must be there; whether it counts, see below.
    trust_num_examples
        Hand the numbers of examples that clients claim to the defense, and weigh their metrics by them.
    arrayrecord_key, configrecord_key, train_metrics_aggr_fn
        As in FedAvg. The records of a reply must have the same key as those sent.
    message_ttl
        Seconds after which a message is void; the ``timeout`` of :meth:`start` by default.
    state_dir
        Folder for everything that must survive; made if need be. Nothing is kept if left out.
    identify
        Who a node is: by default :func:`~mabrfl.flower.by_public_key`.
    buffer_suffixes
        Floating-point arrays whose key ends so are no part of the update: the server takes the median of those of
        the accepted clients.
    """

    def __init__(
        self,
        defense: str | Defense = "mab-rfl",
        selector: str | Selector | None = None,
        *,
        defense_options: Mapping[str, Any] = _NONE,
        selector_options: Mapping[str, Any] = _NONE,
        preset: str | None = None,
        dataset: str | None = None,
        num_malicious_nodes: int = 0,
        seed: int | None = None,
        fraction_train: float | None = None,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        trust_num_examples: bool = False,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: AggregateMetrics | None = None,
        evaluate_metrics_aggr_fn: AggregateMetrics | None = None,
        message_ttl: float | None = None,
        state_dir: str | Path | None = None,
        identify: Identify = by_public_key,
        buffer_suffixes: Sequence[str] = BUFFER_SUFFIXES,
    ) -> None:
        if fraction_train is not None:
            raise ConfigError(FRACTION_TRAIN)
        check_whole("min_train_nodes", min_train_nodes, at_least=1)
        check_whole("min_available_nodes", min_available_nodes, at_least=1)
        check_whole("min_evaluate_nodes", min_evaluate_nodes)
        super().__init__(
            seed=int(getattr(defense, "seed", None) or 0) if seed is None else seed,
            fraction_evaluate=fraction_evaluate,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            weighted_by_key=weighted_by_key,
            trust_num_examples=trust_num_examples,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
            message_ttl=message_ttl,
            identify=identify,
        )
        self.defense = strategy_defense(
            defense,
            selector,
            defense_options=defense_options,
            selector_options=selector_options,
            preset=preset,
            dataset=dataset,
            num_malicious=num_malicious_nodes,
            num_clients=min_available_nodes,
            seed=seed,
        )
        self.description = {"defense": describe(self.defense), "identify": described(identify)}
        if state_dir is not None:
            refuse_undescribed(self.description)
        self.min_train_nodes = min_train_nodes
        self.train_metrics_aggr_fn = train_metrics_aggr_fn
        self.state_dir = None if state_dir is None else Path(state_dir).absolute()
        self.keeper = Keeper(self.defense, buffer_suffixes)
        self._dispatch = Dispatch(0)
        self._mailroom = Mailroom()
        self._grid: Grid | None = None
        self._train_config: ConfigRecord | None = None

    def config(self) -> dict[str, Any]:
        """Return every setting that the outcome depends on; its hash names what ``state_dir`` holds."""
        return {
            "format": FORMAT,
            **self.description,
            "min_train_nodes": self.min_train_nodes,
            "weighted_by_key": self.weighted_by_key,
            "trust_num_examples": self.trust_num_examples,
            "train_config": described(dict(self._train_config or {})),
            "model": self.keeper.schema.describe() if self.keeper.prepared else [],
        }

    def summary(self) -> None:
        """Log the strategy's settings in the style of Flower's own."""
        summary.show(self)

    def start(  # noqa: PLR0917 (Flower's own signature)
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds; see ``Strategy.start``.

        If ``state_dir`` holds rounds of the same configuration, the model and everything else is taken from there,
        and only the rounds that are missing are run: ``num_rounds`` counts all of them.
        """
        self._timeout, self._train_config = timeout, train_config
        keeper = self.keeper
        keeper.prepare(initial_arrays)
        resumed = 0 if self.state_dir is None else keeper.open(self.state_dir, self.config())
        try:
            self._offset, left = keeper.round, num_rounds - resumed
            shielded = OneByOneGrid(grid, keeper.schema.bound(), lambda content: self._contract().check(content))
            ask = None if evaluate_fn is None else self._kept(evaluate_fn, resumed)
            if resumed:
                log.info("Resuming after round %d: %d of %d rounds are left", resumed, max(left, 0), num_rounds)
                self._catch_up(shielded, evaluate_config or ConfigRecord(), ask)
            if left > 0:
                given = (shielded, keeper.record(), left, timeout, train_config, evaluate_config, ask)
                self._note(super().start(*given))
            return keeper.history.result(keeper.record())
        finally:
            keeper.close()

    def _kept(self, evaluate_fn: Evaluate, resumed: int) -> Evaluate:
        """Return the user's function, told rounds over all runs; what it says is kept, and not asked for twice."""

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            number, keeper = self._offset + server_round, self.keeper
            if resumed and resumed == number and keeper.has_evaluated(BY_SERVER, number):
                return keeper.history.evaluate_metrics_serverapp.get(number)
            metrics = evaluate_fn(number, arrays)
            keeper.evaluate(BY_SERVER, number, metrics)
            return metrics

        return evaluate

    def _catch_up(self, grid: Grid, config: ConfigRecord, ask: Evaluate | None) -> None:
        """Evaluate the round after which the last run stopped, if it did not come to that."""
        arrays = self.keeper.record()
        if self.fraction_evaluate and not self.keeper.has_evaluated(BY_CLIENTS, self._offset):
            messages = self.configure_evaluate(0, arrays, config, grid)
            self.aggregate_evaluate(0, grid.send_and_receive(messages=messages, timeout=self._timeout))
        if ask is not None:
            ask(0, arrays)

    def _note(self, result: Result) -> None:
        """Take the metrics as Flower's loop has seen them: a subclass may have changed them on the way."""
        for name in (BY_CLIENTS, BY_SERVER):
            known = getattr(self.keeper.history, name)
            known.update({number + self._offset: record for number, record in getattr(result, name).items()})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average what was reported, and keep it."""
        metrics = super().aggregate_evaluate(server_round, replies)
        if self.fraction_evaluate:
            self.keeper.evaluate(BY_CLIENTS, self._offset + server_round, metrics)
        return metrics

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Stage 1: ask the defense whom to invite, and write to them."""
        if not self.keeper.prepared:
            self.keeper.prepare(arrays)
        number = self._offset + server_round
        self._grid = grid
        roster = call_roll(grid, self.identify, self.min_available_nodes)
        chosen = self.defense.select(roster.clients, round=number) if roster.clients else []
        log.info("configure_train: round %d, selected %d nodes (out of %d)", number, len(chosen), len(roster.clients))
        told = ConfigRecord({**config, "server-round": number})
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: told})
        nodes = [roster.node_of[client] for client in chosen]
        messages = write_messages(content, nodes, MessageType.TRAIN, self.ttl)
        self._dispatch = Dispatch(number, len(roster.clients), messages, chosen, roster.events)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Stages 4 to 6: attribute and check every reply, ask the defense, move the model, save."""
        number, keeper = self._offset + server_round, self.keeper
        if self._dispatch.round != number:
            raise StateError(f"round {number} was not configured")
        before = self.defense.reputation
        findings = getattr(self._grid, "findings", {})
        arrivals = self._mailroom.sort(list(replies), self._dispatch, findings)
        findings.clear()  # the matrix takes their place
        desk = unpack(arrivals, keeper.model, self._contract())
        judgement = judge(
            self.defense, desk, number, at_least=self.min_train_nodes, by_examples=self.trust_num_examples
        )
        moved, events = keeper.move(desk, judgement.outcome)
        events = (*self._dispatch.events, *judgement.events, *events)
        told = Told(
            self._dispatch,
            tuple(desk.arrivals),
            judgement.outcome,
            events,
            before,
            self.defense.reputation,
            judgement.unjudged,
            judgement.norms,
        )
        numbers = figures(told, moved=moved)
        metrics = metric_record(numbers, self._reported(desk, judgement))
        summary.show_round(told, numbers)
        keeper.finish(number, metrics, audit_rows(told, numbers, self._run_id()))
        return keeper.record(), metrics

    def _contract(self) -> Contract:
        """Return what a reply must look like."""
        zero = not np.any(self.keeper.model.weights)
        return Contract(self.keeper.schema, self.arrayrecord_key, self.weighted_by_key, may_be_zero=zero)

    def _reported(self, desk: Desk, judgement: Judgement) -> MetricRecord | None:
        """Return the accepted clients' own metrics, averaged."""
        accepted = [] if judgement.outcome is None else judgement.outcome.accepted
        contents = [desk.contents[client] for client in accepted if client in desk.contents]
        if not contents:
            return None
        weights = [desk.examples[client] for client in accepted if client in desk.contents]
        return self.averaged(contents, weights, self.train_metrics_aggr_fn or mean_metrics)

    def _run_id(self) -> str:
        try:
            return str(self._grid.run.run_id) if self._grid is not None else ""
        except Exception:  # noqa: BLE001 (a grid outside a run has none, and each says so in its own way)
            return ""
