"""Any defense of the catalogue as a Flower strategy: it moves messages, and the defense decides."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from mabrfl import vectors
from mabrfl.checks import check_whole
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError, StateError
from mabrfl.flower.alerts import Alerts
from mabrfl.flower.client_evaluation import AggregateMetrics, mean_metrics
from mabrfl.flower.defenses import FRACTION_TRAIN, check_root, describe, refuse_undescribed, strategy_defense
from mabrfl.flower.describing import described
from mabrfl.flower.heads import HeadRecord
from mabrfl.flower.judging import Judgement, Limits, ReplyBatch, judge, unpack
from mabrfl.flower.messages import ReplyMatcher, SentMessages, write_messages
from mabrfl.flower.node_identity import Identify, by_public_key, wait_for_nodes
from mabrfl.flower.reply_checks import ZEROS, CheckResult, ReplyChecker
from mabrfl.flower.resuming import ResumingStrategy
from mabrfl.flower.root_training import RootUpdate, root_row
from mabrfl.flower.round_report import RoundReport, audit_rows, figures, log_round, log_settings, metric_record
from mabrfl.flower.server_state import FORMAT, ServerState
from mabrfl.flower.state_folder import AuditKeeping
from mabrfl.flower.tracking import RoundTracking
from mabrfl.flower.update_rows import UpdateRows
from mabrfl.flower.watching import RoundWatch
from mabrfl.global_model import BUFFER_SUFFIXES, GlobalModel
from mabrfl.protocols import Selector
from mabrfl.rng import ClientId

log = logging.getLogger("flwr")

_NONE: Mapping[str, Any] = {}


class RobustStrategy(ResumingStrategy):
    """A Flower strategy in which a defense of mabrfl selects clients, judges replies and computes the step.

    Every reply is checked by itself against the server's own model. Bad content is quarantined and blamed; an error, a
    late or a missing reply is recorded and never blamed. With ``state_dir`` everything survives a restart.

    Parameters
    ----------
    defense
        A name of ``mabrfl list defenses``, ``module:Name``, or a :class:`mabrfl.Defense`.
    selector
        A name of ``mabrfl list selectors``, ``module:Name``, or a selector; the defense's own by default.
    before, before_options
        Pre-aggregators in front of the rule, in order: names of ``mabrfl list preaggregators`` or ``module:Name``, as a
        list or as text (``"bucketing+nnm"``); and arguments of their constructors.
    defense_options, selector_options
        Arguments of their constructors.
    preset, dataset
        Of MAB-RFL; see :class:`mabrfl.MabRfl`. The library's default preset if left out.
    num_malicious_nodes
        The number of attackers among all nodes, for rules that need it.
    seed
        Root of all random choices of the server. The default is 0, or the seed of a defense that is an object.
    fraction_train
        Not allowed: the selector decides which clients train.
    fraction_evaluate, min_evaluate_nodes, evaluate_metrics_aggr_fn
        As in FedAvg.
    min_train_nodes
        At least this many nodes are invited, if they are online. With fewer usable replies no reply is judged and the
        model does not change.
    min_available_nodes
        A round starts when this many nodes are online that are not banned.
    max_rejected, min_accepted
        Skip a round if more than this share of the replies (from 0 to 1) is rejected, or fewer than this number
        accepted: the model does not change, and nobody gains or loses reputation. By default no round is skipped.
    weighted_by_key
        The name of the number of examples in each reply's MetricRecord, which is required.
    trust_num_examples
        Give the numbers of examples that clients claim to the defense, and weight their metrics by them.
    arrayrecord_key, configrecord_key, train_metrics_aggr_fn
        As in FedAvg. The records of a reply must have the same key as those sent.
    message_ttl
        Seconds after which a message expires; the ``timeout`` of :meth:`start` by default.
    state_dir
        Folder for the state, created if it does not exist. Nothing is saved if left out.
    accept_changes
        Go on with a folder of other settings, but of the same model, and keep its reputations. The audit names them.
    audit_max_bytes
        Begin a new file of the audit after a round in which it has become larger than this. Old files are kept.
    record_head
        Record the last hash of the audit after every round: a file outside the folder, or the words of a command.
        At the start the recorded hash must be in the audit, so that an older copy of the folder is refused.
    alert_command, alert_url
        Receive alerts as JSON: the words of a command, on its standard input; an ``http://127.0.0.1`` address, by POST.
    track
        Trackers that get the numbers of each round: ``tensorboard``, ``mlflow``, ``wandb``, or a list of these.
    identify
        Returns the identities of nodes; :func:`~mabrfl.flower.by_public_key` by default.
    root_update
        Trains the global model on the server's own clean data, as a client would: called with the round and the model's
        arrays, it returns the trained arrays. Needed by ``fltrust``; never use the clients' data for it.
    buffer_suffixes
        Floating-point arrays whose key ends like this are not part of the update: the server takes their median over
        the accepted clients.
    """

    def __init__(
        self,
        defense: str | Defense = "mab-rfl",
        selector: str | Selector | None = None,
        *,
        before: str | Sequence[str] = "",
        before_options: Mapping[str, Any] = _NONE,
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
        max_rejected: float | None = None,
        min_accepted: int = 0,
        weighted_by_key: str = "num-examples",
        trust_num_examples: bool = False,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: AggregateMetrics | None = None,
        evaluate_metrics_aggr_fn: AggregateMetrics | None = None,
        message_ttl: float | None = None,
        state_dir: str | Path | None = None,
        accept_changes: bool = False,
        audit_max_bytes: int | None = None,
        record_head: str | Path | Sequence[str] | None = None,
        alert_command: Sequence[str] | None = None,
        alert_url: str | None = None,
        track: str | Sequence[str] = (),
        identify: Identify = by_public_key,
        root_update: RootUpdate | None = None,
        buffer_suffixes: Sequence[str] = BUFFER_SUFFIXES,
    ) -> None:
        if fraction_train is not None:
            raise ConfigError(FRACTION_TRAIN)
        check_whole("min_train_nodes", min_train_nodes, at_least=1)
        check_whole("min_available_nodes", min_available_nodes, at_least=1)
        check_whole("min_evaluate_nodes", min_evaluate_nodes)
        check_whole("min_accepted", min_accepted)
        if audit_max_bytes is not None:
            check_whole("audit_max_bytes", audit_max_bytes, at_least=1)
        if max_rejected is not None and not 0 <= max_rejected <= 1:
            raise ConfigError(f"max_rejected must lie in [0, 1]; got {max_rejected}")
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
            before=before,
            before_options=before_options,
            defense_options=defense_options,
            selector_options=selector_options,
            preset=preset,
            dataset=dataset,
            num_malicious=num_malicious_nodes,
            num_clients=min_available_nodes,
            seed=seed,
        )
        check_root(defense, root_update)
        self.root_update = root_update
        self.description = {"defense": describe(self.defense), "identify": described(identify)}
        if root_update is not None:
            self.description["root_update"] = described(root_update)
        if state_dir is not None:
            refuse_undescribed(self.description)
        self.min_train_nodes = min_train_nodes
        self.limits = Limits(min_train_nodes, max_rejected, min_accepted)
        self.alerts = Alerts(alert_command, alert_url)
        self._watch = RoundWatch(self.alerts)
        self._tracking = RoundTracking(track)
        self.train_metrics_aggr_fn = train_metrics_aggr_fn
        self.accept_changes = accept_changes
        heads = None if record_head is None else HeadRecord.at(record_head)
        self.audit_keeping = AuditKeeping(audit_max_bytes, heads)
        self.state_dir = None if state_dir is None else Path(state_dir).absolute()
        self.state = ServerState(self.defense, buffer_suffixes)
        self._sent = SentMessages(0)
        self._matcher = ReplyMatcher()
        self._rows = UpdateRows()
        self._grid: Grid | None = None
        self._check: tuple[GlobalModel, ReplyChecker] | None = None
        self._train_config: ConfigRecord | None = None

    def config(self) -> dict[str, Any]:
        """Return every setting that the outcome depends on; ``state_dir`` is compared by its hash."""
        return {
            "format": FORMAT,
            **self.description,
            "min_train_nodes": self.min_train_nodes,
            "weighted_by_key": self.weighted_by_key,
            "trust_num_examples": self.trust_num_examples,
            **self.limits.describe(),
            "train_config": described(dict(self._train_config or {})),
            "model": self.state.schema.describe() if self.state.prepared else [],
        }

    def summary(self) -> None:
        """Log the strategy's settings in the style of Flower's own."""
        log_settings(self)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Stage 1: let the defense select clients, and write their messages."""
        if not self.state.prepared:
            self.state.prepare(arrays)
        number = self._offset + server_round
        self._grid = grid
        self._watch.begin(number)
        online = wait_for_nodes(grid, self.identify, self.min_available_nodes, self._new_bans)
        self._watch.stage("wait-for-nodes")
        self._watch.see_names(online.names)
        chosen = self._select(online.clients, number) if online.clients else []
        log.info("configure_train: round %d, selected %d nodes (out of %d)", number, len(chosen), len(online.clients))
        settings = ConfigRecord({**config, "server-round": number})
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: settings})
        nodes = [online.node_of[client] for client in chosen]
        messages = write_messages(content, nodes, MessageType.TRAIN, self.ttl)
        self._sent = SentMessages(number, len(online.clients), messages, chosen, online.events)
        self._rows.begin(chosen, nodes, self.state.schema)
        self._watch.stage("select")
        return messages

    def banned(self) -> Collection[ClientId]:
        """Return the identities that the operator has banned."""
        self._watch.look_at_wait()
        return self.state.operator.banned

    def _new_bans(self) -> Collection[ClientId]:
        self.state.take_requests()
        return self.banned()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Stages 4 to 6: match and check every reply, call the defense, move the model, save."""
        number, state = self._offset + server_round, self.state
        if self._sent.round != number:
            raise StateError(f"round {number} was not configured")
        self._watch.stage("train")
        before = self.defense.reputation
        results = getattr(self._grid, "results", {})
        matched = self._matcher.match(list(replies), self._sent, results)
        results.clear()  # the matrix replaces them
        batch = unpack(matched, state.model, self._checker(), self._rows)
        if self.root_update is not None:
            batch.root_update = root_row(self.root_update, number, state.record(), state.schema, state.model)
        judgement = judge(self.defense, batch, number, limits=self.limits, by_examples=self.trust_num_examples)
        moved, events = state.move(batch, judgement.outcome)
        events = (*self._sent.events, *judgement.events, *events)
        report = RoundReport(
            self._sent,
            tuple(batch.replies),
            judgement.outcome,
            events,
            before,
            self.defense.reputation,
            judgement.unjudged,
            judgement.norms,
        )
        numbers = figures(report, moved=moved)
        metrics = metric_record(numbers, self._reported(batch, judgement))
        log_round(report, numbers)
        rows = list(audit_rows(report, numbers, self._run_id()))
        self._watch.stage("judge")
        state.finish(number, metrics, rows)
        self._watch.stage("save")
        self._watch.end(numbers, rows, self.state_dir, head_recorded=state.head_recorded)
        self._tracking.round_done(number, numbers, self.defense.reputation)
        if self.state_dir is not None:
            newest, reputation = state.history.newest_metrics(), self.defense.reputation
            state.save_status(self._watch.status(metrics=newest, reputation=reputation, decisions=state.operator))
        return state.record(), metrics

    def _select(self, online: list[ClientId], number: int) -> list[ClientId]:
        """Let the defense select; fewer than ``min_train_nodes`` could not be judged, so it fills up to that number."""
        if getattr(type(self.defense), "select", None) is not Defense.select:  # the user's own
            return self.defense.select(online, round=number)
        pinned = self.state.operator.pinned
        return self.defense.select(online, round=number, at_least=self.min_train_nodes, always=pinned)

    def check_reply(self, content: RecordDict, node: int) -> CheckResult:
        """Check a reply of a node against the present model, and unpack its weights into the node's row."""
        return self._checker().check(content, self._rows.row(node))

    def _checker(self) -> ReplyChecker:
        """Return the check of replies against the present model."""
        model = self.state.model
        if self._check is None or self._check[0] is not model:  # made once a round: it reads the whole model
            norm = float(vectors.row_norms(model.weights[None])[0])
            shortest = ZEROS * norm if norm else -1.0
            checker = ReplyChecker(self.state.schema, self.arrayrecord_key, self.weighted_by_key, shortest)
            self._check = model, checker
        return self._check[1]

    def _reported(self, batch: ReplyBatch, judgement: Judgement) -> MetricRecord | None:
        """Return the accepted clients' own metrics, averaged."""
        accepted = [] if judgement.outcome is None else judgement.outcome.accepted
        contents = [batch.contents[client] for client in accepted if client in batch.contents]
        if not contents:
            return None
        weights = [batch.examples[client] for client in accepted if client in batch.contents]
        return self.averaged(contents, weights, self.train_metrics_aggr_fn or mean_metrics)

    def _run_id(self) -> str:
        try:
            return str(self._grid.run.run_id) if self._grid is not None else ""
        except Exception:  # noqa: BLE001 (a grid outside a run has none, and each kind of grid raises something else)
            return ""
