"""Attacks of fake clients, which have no data: they know the public models alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from mabrfl import vectors
from mabrfl.attacks._directions import Vector
from mabrfl.attacks._statistics import bounded, everyone_sends
from mabrfl.attacks.base import Attack
from mabrfl.attacks.framing import with_jitter
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive, check_whole
from mabrfl.errors import ConfigError, StateError
from mabrfl.updates import Floats

NotFinite = Literal["nan", "inf", "-inf"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FreeRider(Attack):
    r"""Free rider: take part without training: an update of zeros, or the last public step.

    .. math:: \tilde g_k = 0 \quad\text{or}\quad \tilde g_k = (w_t - w_{t-1}) + \jmath \, \|w_t - w_{t-1}\| \, n_k

    It does not aim at harm: zeros slow averaging down, the last step is close to an honest update.

    Parameters
    ----------
    update
        ``"zero"``, or ``"last-step"``; zeros also in the first round, which has no last step.
    noise
        Length of each client's own noise, relative to the last step, to look like a client that trains; only for
        ``"last-step"``.

    References
    ----------
    Lin et al., Free-riders in federated learning (2019), "delta weights"; Fraboni et al., Free-rider attacks on model
    aggregation in federated learning (AISTATS 2021), plain and disguised.
    """

    update: Literal["zero", "last-step"] = "zero"
    noise: float = 0.0

    knowledge = Knowledge.AGNOSTIC
    trains = False

    def __post_init__(self) -> None:
        check_choice("update", self.update, ("zero", "last-step"))
        check_positive("noise", self.noise, or_zero=True)
        if self.noise and self.update == "zero":
            raise ConfigError(f"noise is only for update 'last-step'; got {self.noise}")

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return zeros or the last public step, once per attacker."""
        step = view.last_step
        if self.update == "zero" or step is None:
            return everyone_sends(np.zeros_like(view.global_weights), view)
        return with_jitter(step, view, "free-rider", self.noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class NanSender(Attack):
    """NaN sender: updates that are not numbers, which destroy a model that is averaged without a check.

    Parameters
    ----------
    value
        ``"nan"``, ``"inf"`` or ``"-inf"``, in every coordinate.
    """

    value: NotFinite = "nan"

    knowledge = Knowledge.AGNOSTIC
    trains = False

    def __post_init__(self) -> None:
        check_choice("value", self.value, get_args(NotFinite))

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the value in every coordinate."""
        return everyone_sends(np.full_like(view.global_weights, float(self.value)), view)


@dataclass(frozen=True, kw_only=True, eq=False)
class MPAF(Attack):
    r"""MPAF: fake clients pull the global model towards a random model, with very long updates.

    .. math:: \tilde g = \lambda \, (w' - w_t)

    Parameters
    ----------
    scale
        :math:`\lambda`.
    weights
        Deviation of the weights of the random model :math:`w'`, which is the same for the whole run.

    References
    ----------
    Cao, Gong, MPAF: model poisoning attacks to federated learning based on fake clients (CVPR workshops 2022);
    lambda = 1e6 as there.
    """

    scale: float = 1e6
    weights: float = 0.1

    knowledge = Knowledge.AGNOSTIC
    trains = False

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("weights", self.weights)

    def base(self, view: AttackerView) -> Vector:
        """Return the random model."""
        return np.asarray(self.weights * view.lasting_rng("mpaf").standard_normal(view.shape[1]))

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the way to the random model, enlarged, once per attacker."""
        way = self.scale * (self.base(view) - view.global_weights)
        return everyone_sends(bounded(way, view.global_weights.dtype), view)


def aligned_by_chance(aligned: int, width: int) -> float:
    """Return the probability that so many or more of the coordinates have given signs by chance.

    Examples
    --------
    >>> aligned_by_chance(3, 3)
    0.125
    """
    return float(bdtrc(aligned - 1, width, 0.5)) if aligned > 0 else 1.0


@dataclass(kw_only=True, eq=False)
class PoisonedFL(Attack):
    r"""PoisonedFL: fake clients push with the same random signs for the whole run, as long as the model follows.

    .. math:: \tilde g_t = c_t \, \|u_t\| \; v_t \odot s, \qquad
              v_t \propto \Bigl| u_t - \frac{\|u_t\|}{\|\tilde g_{t-1}\|} \tilde g_{t-1} \Bigr|, \quad \|v_t\| = 1

    with the last public step :math:`u_t = w_t - w_{t-1}` and random signs s. The length of each coordinate follows the
    part of the last step that the attack did not cause. Every ``window`` rounds a test looks whether the model has
    moved along s: if the number of coordinates with these signs could be chance, :math:`c` is lowered.

    Parameters
    ----------
    factor
        c at the start.
    window
        Rounds between two tests.
    lower
        What c is multiplied by if the model did not follow.
    smallest
        c does not fall below this.
    significance
        The probability up to which alignment does not count as chance.

    Notes
    -----
    In the first round there is no last step, and the attackers send honest updates.

    References
    ----------
    Xie, Fang, Gong, Model poisoning attacks to federated learning via multi-round consistency (CVPR 2025); the
    defaults are the authors'. Their code knows the test for four sizes of models; here it is exact for all.
    """

    factor: float = 8.0
    window: int = 50
    lower: float = 0.7
    smallest: float = 0.5
    significance: float = 0.01
    _present: float = field(default=0.0, init=False, repr=False)
    _sent: NDArray[Any] | None = field(default=None, init=False, repr=False)
    _weights: NDArray[Any] | None = field(default=None, init=False, repr=False)
    _since: int = field(default=0, init=False, repr=False)
    _last_round: int = field(default=0, init=False, repr=False)

    knowledge = Knowledge.AGNOSTIC

    def __post_init__(self) -> None:
        check_whole("window", self.window, at_least=1)
        for name in ("factor", "lower", "smallest", "significance"):
            check_positive(name, getattr(self, name))
        for name in ("lower", "significance"):
            if getattr(self, name) >= 1:
                raise ConfigError(f"{name} must be below 1; got {getattr(self, name)}")
        self._present = self.factor

    def trains_at(self, round_number: int, /) -> bool:
        """Whether the attackers train: in the first round, in which there is no last step."""
        return round_number == 1

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the push, once per attacker."""
        if view.round <= self._last_round:  # a new run has begun
            self._present, self._sent, self._weights = self.factor, None, None
        self._last_round = view.round
        signs = view.lasting_rng("poisoned-fl").choice([-1.0, 1.0], size=view.shape[1])
        self._test(view, signs)
        step = view.last_step
        length = 0.0 if step is None else float(vectors.row_norms(step[None, :])[0])
        if step is None or length == 0:
            return view.own_updates
        rest = np.abs(step - self._caused(length))
        size = float(np.linalg.norm(rest))
        shape = rest / size if size > 0 else np.abs(step) / length
        self._sent = bounded(self._present * length * shape * signs, step.dtype)
        return everyone_sends(self._sent, view)

    def _caused(self, length: float) -> Vector:
        """Return the part of the last step that the last push would have caused alone."""
        past = 0.0 if self._sent is None else float(vectors.row_norms(self._sent[None, :])[0])
        return np.zeros(1) if self._sent is None or past == 0 else self._sent * (length / past)

    def _test(self, view: AttackerView, signs: Vector) -> None:
        """Lower the factor if the model has not followed since the last test."""
        if self._weights is not None and view.round - self._since < self.window:
            return
        if self._weights is not None:
            aligned = int(np.sum(np.sign(view.global_weights - self._weights) == signs))
            chance = aligned_by_chance(aligned, len(signs)) > self.significance
            if chance and self._present * self.lower >= self.smallest:
                self._present *= self.lower
        self._weights, self._since = view.global_weights.copy(), view.round

    def state_dict(self) -> dict[str, Any]:
        """Return the factor, the last push, and the model of the last test."""
        return {
            "present": self._present,
            "sent": None if self._sent is None else self._sent.copy(),
            "weights": None if self._weights is None else self._weights.copy(),
            "since": self._since,
            "last_round": self._last_round,
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what ``state_dict`` returned."""
        try:
            arrays = [None if state[name] is None else np.array(state[name]) for name in ("sent", "weights")]
            present, since, last_round = float(state["present"]), int(state["since"]), int(state["last_round"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state of PoisonedFL must have its factor, arrays and rounds; {error!r}") from error
        self._sent, self._weights = arrays
        self._present, self._since, self._last_round = present, since, last_round
