"""The part of a strategy that runs the rounds which are missing in its state folder, and reports how it ended."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from mabrfl.flower.alerts import Alerts
from mabrfl.flower.client_evaluation import EvaluatingStrategy
from mabrfl.flower.logs import numbered_rounds
from mabrfl.flower.reply_checks import CheckResult
from mabrfl.flower.reply_grid import OneByOneGrid
from mabrfl.flower.server_state import BY_CLIENTS, BY_SERVER, ServerState
from mabrfl.flower.state_folder import AuditKeeping
from mabrfl.flower.tracking import RoundTracking
from mabrfl.flower.watching import RoundWatch
from mabrfl.recording.audit import safe_text

log = logging.getLogger("flwr")

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class ResumingStrategy(EvaluatingStrategy):
    """A strategy whose rounds continue after a restart. Its subclass says what a round is."""

    state: ServerState
    state_dir: Path | None
    accept_changes: bool
    audit_keeping: AuditKeeping
    alerts: Alerts
    _watch: RoundWatch
    _tracking: RoundTracking
    _train_config: ConfigRecord | None

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return every setting that the outcome depends on."""

    @abstractmethod
    def check_reply(self, content: Any, node: int) -> CheckResult:
        """Check a reply of a node against the present model."""

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

        If ``state_dir`` has rounds of the same configuration, the model and everything else is loaded from there, and
        only the missing rounds are run: ``num_rounds`` counts all of them.
        """
        self._timeout, self._train_config = timeout, train_config
        state, done = self.state, False
        state.prepare(initial_arrays)
        try:
            resumed = self._open()
            self._tracking.open(self.config(), self.state_dir, resumed)
            self._offset, left = state.round, num_rounds - resumed
            safe_grid = OneByOneGrid(grid, state.schema.reply_limits(), self.check_reply)
            evaluate = None if evaluate_fn is None else self._saving(evaluate_fn, resumed)
            if resumed:
                log.info("Resuming after round %d: %d of %d rounds are left", resumed, max(left, 0), num_rounds)
                self._evaluate_resumed(safe_grid, evaluate_config or ConfigRecord(), evaluate)
            if left > 0:
                arguments = (safe_grid, state.record(), left, timeout, train_config, evaluate_config, evaluate)
                with numbered_rounds(self._offset, num_rounds):
                    self._update_history(super().start(*arguments))
            done = True
            return state.history.result(state.record())
        except Exception as error:
            self._report_end(error)
            raise
        finally:
            state.close()
            self.alerts.close()
            self._tracking.close(done=done)

    def _open(self) -> int:
        """Open the state folder, if there is one; return the last finished round in it."""
        resumed = 0
        if self.state_dir is not None:
            resumed = self.state.open(
                self.state_dir, self.config(), accept_changes=self.accept_changes, keeping=self.audit_keeping
            )
        self._watch = RoundWatch(self.alerts, self.state.last_status())
        return resumed

    def _report_end(self, error: Exception) -> None:
        """Say why a run ends. Flower marks a run whose SuperLink died as finished, and gives no reason."""
        cause = safe_text(f"{type(error).__name__}: {error}", 1000)
        log.error("the run ends after round %d: %s", self.state.round, cause)
        if self.state_dir is not None:
            log.error("to go on after that round, start the app again with state_dir %s", self.state_dir)
        self.alerts.send("run-ended", "critical", f"the run ends after round {self.state.round}: {cause}")

    def _saving(self, evaluate_fn: Evaluate, resumed: int) -> Evaluate:
        """Return the user's function, called with the round over all runs; each result is saved and computed once."""

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            number, state = self._offset + server_round, self.state
            if resumed and resumed == number and state.has_evaluated(BY_SERVER, number):
                return state.history.evaluate_metrics_serverapp.get(number)
            metrics = evaluate_fn(number, arrays)
            state.evaluate(BY_SERVER, number, metrics)
            self._tracking.evaluated(number, metrics)
            return metrics

        return evaluate

    def _evaluate_resumed(self, grid: Grid, config: ConfigRecord, evaluate: Evaluate | None) -> None:
        """Evaluate the last round of the run before, if that run stopped before the evaluation."""
        arrays = self.state.record()
        if self.fraction_evaluate and not self.state.has_evaluated(BY_CLIENTS, self._offset):
            messages = self.configure_evaluate(0, arrays, config, grid)
            self.aggregate_evaluate(0, grid.send_and_receive(messages=messages, timeout=self._timeout))
        if evaluate is not None:
            evaluate(0, arrays)

    def _update_history(self, result: Result) -> None:
        """Take the metrics from Flower's loop: a subclass may have changed them."""
        for name in (BY_CLIENTS, BY_SERVER):
            known = getattr(self.state.history, name)
            known.update({number + self._offset: record for number, record in getattr(result, name).items()})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the reported metrics, and save the result."""
        metrics = super().aggregate_evaluate(server_round, replies)
        if self.fraction_evaluate:
            self.state.evaluate(BY_CLIENTS, self._offset + server_round, metrics)
            self._tracking.evaluated(self._offset + server_round, metrics)
        return metrics
