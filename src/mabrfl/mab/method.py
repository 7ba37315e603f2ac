"""MAB-RFL as one object: the rule, selector and beliefs of a preset."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from mabrfl.checks import check_choice
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError, suggest
from mabrfl.mab.hardened import HardenedOptions, HardenedRule
from mabrfl.mab.paper import MabRflRule
from mabrfl.mab.presets import DEFAULT_PRESET, THRESHOLDS, MabRflOptions, Options, memory_option
from mabrfl.mab.presets import options as preset_options
from mabrfl.protocols import Selector
from mabrfl.reputation import Beliefs, Reaction
from mabrfl.screening.momentum import HalfMomentumMemory, MomentumMemory
from mabrfl.selection import ACS, Budgeted

Momenta = Literal["memory", "disk", "half", "none"]
"""Where past updates are kept."""


class MabRfl(Defense):
    """MAB-RFL: adaptive client selection, sybil and outlier screens, rewards, unit momenta (paper, Alg. 2).

    Parameters
    ----------
    preset
        ``"hardened"`` (the default: no threshold to tune), ``"paper"`` (the text, line by line) or
        ``"reference"`` (the released code's behaviour).
    seed
        Root of all random streams.
    selector
        Another selector instead of ACS.
    dataset
        For the preset ``paper``: take the thresholds for this data set: ``"mnist"`` (the default),
        ``"fashion-mnist"``, ``"cifar10"`` or ``"digits"``.
    dimension
        See :class:`Defense`.
    momenta
        Where past updates are kept: in ``"memory"``; on ``"disk"`` (the same results, bit for bit; in
        ``momenta_folder``); in memory in ``"half"`` precision (half of the memory; results can differ); or ``"none"``:
        they are not kept, as with ``memory=0`` or ``history=0``.
    momenta_folder
        An existing folder for ``"disk"``. It holds no file that you can see; state is saved by ``state_dict`` as ever.
    **overrides
        Any field of :class:`mabrfl.mab.hardened.HardenedOptions` (preset ``hardened``: ``budget``, ``memory``,
        ...) or of :class:`mabrfl.mab.presets.MabRflOptions` (``c_max``, ``c_min``, ``alpha``, ``history``, ...).

    Examples
    --------
    >>> import numpy as np
    >>> from mabrfl import Updates
    >>> shield = MabRfl(seed=0)
    >>> chosen = shield.select(["ada", "bob", "eve", "mallory"], round=1)
    >>> matrix = np.random.default_rng(0).normal(size=(len(chosen), 8))
    >>> outcome = shield.aggregate(Updates(chosen, matrix), round=1)
    >>> sorted(outcome.verdicts) == sorted(chosen)
    True
    """

    rule: MabRflRule | HardenedRule

    def __init__(
        self,
        preset: str = DEFAULT_PRESET,
        *,
        seed: int = 0,
        selector: Selector | None = None,
        dataset: str | None = None,
        dimension: int | None = None,
        momenta: Momenta = "memory",
        momenta_folder: str | PathLike[str] | None = None,
        **overrides: Any,
    ) -> None:
        if dataset is not None and dataset not in THRESHOLDS:
            raise ConfigError(f"no thresholds are known for the data set '{dataset}'{suggest(dataset, THRESHOLDS)}")
        memory = _memory(momenta, momenta_folder)
        if momenta == "none":
            overrides = {memory_option(preset): 0.0, **overrides}
        chosen = preset_options(preset, dataset, **overrides)
        self.preset = preset
        self.options = chosen
        super().__init__(
            rule_of(chosen, memory),
            selector=selector or selector_of(chosen),
            seed=seed,
            name="mab-rfl",
            beliefs=_beliefs(chosen),
            reset_beliefs=isinstance(chosen, MabRflOptions) and chosen.beliefs == "reset",
            dimension=dimension,
            blame_majority=isinstance(chosen, MabRflOptions),
        )


def _memory(momenta: str, folder: str | PathLike[str] | None) -> MomentumMemory:
    """Return an empty memory of this kind."""
    check_choice("momenta", momenta, get_args(Momenta))
    if (momenta == "disk") != (folder is not None):
        raise ConfigError(f"momenta 'disk' and momenta_folder need each other; got {momenta!r} and {folder!r}")
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"momenta_folder must be an existing folder; got {str(folder)!r}")
    return HalfMomentumMemory() if momenta == "half" else MomentumMemory(None if folder is None else Path(folder))


def rule_of(chosen: Options, momenta: MomentumMemory | None = None) -> MabRflRule | HardenedRule:
    """Return the rule that belongs to a set of options."""
    if isinstance(chosen, MabRflOptions):
        return MabRflRule(chosen, momenta)
    return HardenedRule(chosen, momenta)


def selector_of(chosen: Options) -> Selector:
    """Return the selector that belongs to a set of options."""
    if isinstance(chosen, HardenedOptions):
        return Budgeted(num_selected=chosen.budget) if chosen.budget else ACS(warmup_rounds=chosen.warmup_rounds)
    return ACS(
        warmup_rounds=chosen.warmup_rounds,
        inclusion=chosen.inclusion,
        always_from=chosen.always_from,
        never_to=chosen.never_to,
        empty_selection=chosen.empty_selection,
        first_round=chosen.first_round,
    )


def _beliefs(chosen: Options) -> Beliefs:
    if isinstance(chosen, MabRflOptions):
        return Beliefs(prior_benign=chosen.prior_benign, prior_malicious=chosen.prior_malicious)
    return Beliefs(
        prior_benign=chosen.prior_benign,
        prior_malicious=chosen.prior_malicious,
        newcomer=(chosen.newcomer_benign, chosen.newcomer_malicious),
        reaction=Reaction(chosen.keep_good, chosen.strike, chosen.forgive),
    )
