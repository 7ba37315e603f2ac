"""MAB-RFL as a Flower strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

from mabrfl.checks import check_choice
from mabrfl.errors import ConfigError
from mabrfl.flower.client_evaluation import AggregateMetrics
from mabrfl.flower.node_identity import Identify, by_public_key
from mabrfl.flower.strategy import RobustStrategy
from mabrfl.global_model import BUFFER_SUFFIXES
from mabrfl.mab.method import MabRfl, Momenta
from mabrfl.mab.presets import DEFAULT_PRESET, memory_option
from mabrfl.protocols import Selector


class MabRflStrategy(RobustStrategy):
    """MAB-RFL: clients that lie are detected, remembered by their key, and selected less and less often.

    Parameters
    ----------
    preset
        See :class:`mabrfl.MabRfl`; the library's default if left out.
    momenta
        Where past updates are kept, 4 d bytes for every client ever seen: in ``"memory"``; on ``"disk"``, in a file
        without a name in ``state_dir`` (the same results, bit for bit); in memory in ``"half"`` precision, 2 d bytes;
        or ``"none"``: each update is judged by the present round only (``memory=0``; ``history=0`` in the presets
        ``paper`` and ``reference``). True is ``"memory"``, False is ``"none"``. A folder can change between memory
        and disk; any other change is one of settings.
    selector
        A selector in place of the method's own.
    dataset, seed, fraction_train, fraction_evaluate, min_train_nodes, min_evaluate_nodes, min_available_nodes
        See :class:`~mabrfl.flower.RobustStrategy`, also for those that follow.
    **options
        Any field of :class:`mabrfl.HardenedOptions`, or of :class:`mabrfl.MabRflOptions` for the other presets.

    Examples
    --------
    >>> strategy = MabRflStrategy(min_available_nodes=50, state_dir=None, seed=1)
    >>> strategy.defense.name
    'mab-rfl'
    """

    def __init__(
        self,
        preset: str | None = None,
        *,
        momenta: Momenta | bool = "memory",
        selector: str | Selector | None = None,
        dataset: str | None = None,
        seed: int = 0,
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
        buffer_suffixes: Sequence[str] = BUFFER_SUFFIXES,
        **options: Any,
    ) -> None:
        kept = ("memory" if momenta else "none") if isinstance(momenta, bool) else momenta
        check_choice("momenta", kept, get_args(Momenta))
        if kept == "none":
            name = memory_option(preset or DEFAULT_PRESET)
            if options.get(name):
                raise ConfigError(f"momenta {momenta!r} means {name}=0; got {name}={options[name]}")
            options = {**options, name: 0.0}
        elif kept == "half":
            options = {**options, "momenta": kept}
        elif kept == "disk" and state_dir is None:
            raise ConfigError("momenta 'disk' are in the state folder: give a state_dir as well")
        super().__init__(
            "mab-rfl",
            selector,
            defense_options=options,
            preset=preset,
            dataset=dataset,
            seed=seed,
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=min_train_nodes,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            max_rejected=max_rejected,
            min_accepted=min_accepted,
            weighted_by_key=weighted_by_key,
            trust_num_examples=trust_num_examples,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            train_metrics_aggr_fn=train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
            message_ttl=message_ttl,
            state_dir=state_dir,
            accept_changes=accept_changes,
            audit_max_bytes=audit_max_bytes,
            record_head=record_head,
            alert_command=alert_command,
            alert_url=alert_url,
            track=track,
            identify=identify,
            buffer_suffixes=buffer_suffixes,
        )
        if kept == "disk":  # after the defense was described: where they are is no setting that results depend on
            cast("MabRfl", self.defense).rule.momenta.folder = self.state_dir
