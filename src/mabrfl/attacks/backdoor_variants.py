"""Backdoors beside the plain one: divided among the attackers, boosted, and hidden where the model hardly moves."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks._directions import check_fraction
from mabrfl.attacks.backdoor import Backdoor, in_corner
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView
from mabrfl.checks import check_whole
from mabrfl.errors import ConfigError
from mabrfl.updates import Floats

PARTS = 4
"""The parts of the trigger of :class:`DBA`, two above and two below."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DBA(Backdoor):
    r"""DBA, distributed backdoor: each attacker trains with one of four parts of the mark; the goal has all four.

    The mark is four bright bars of one by m pixels, two beside each other and two below them:

    .. math:: \text{rows } 0, \; g + 1, \qquad \text{columns } 0, \dots, m - 1 \text{ and } m + g, \dots, 2m + g - 1

    The adversary's clients take the parts in turn. No attacker trains on the whole mark, so their updates differ
    more than those of :class:`Backdoor`.

    Parameters
    ----------
    size
        m: the length of a bar, shortened in pictures that are too narrow: 3 in the digits, which are 8 pixels wide.
        For data that are not pictures a part is m features, one part after the other from the first feature on.
    gap
        g: pixels between two bars.
    target, share, value, corner, boost
        As in :class:`Backdoor`.

    References
    ----------
    Xie et al., DBA: distributed backdoor attacks against federated learning (ICLR 2020); size and gap as in the
    authors' code for MNIST. Without ``boost`` it is the paper's attack with multiple shots.
    """

    size: int = 4
    gap: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("gap", self.gap)

    def poisoner(self, place: int, /) -> Attack:
        """Return the same backdoor with one part of the mark."""
        return _OnePart(**asdict(self), part=place % PARTS)

    def mask(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return where the whole mark is."""
        return np.asarray(np.any([self.bar(part, shape) for part in range(PARTS)], axis=0))

    def bar(self, part: int, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return where one part of the mark is."""
        room = (shape[-1] - self.gap) // 2 if len(shape) > 1 else shape[-1] // PARTS
        length = min(self.size, room)
        if length < 1 or (len(shape) > 1 and self.gap + 2 > shape[-2]):
            raise ConfigError(f"the mark of {PARTS} bars does not fit inputs of shape {shape} with gap {self.gap}")
        if len(shape) == 1:
            return np.asarray(np.arange(shape[0]) // length == part)
        below, beside = divmod(part, 2)
        start = beside * (length + self.gap)
        mark = np.zeros(shape[-2:], dtype=bool)
        mark[below * (self.gap + 1), start : start + length] = True
        return in_corner(mark, self.corner)


@dataclass(frozen=True, kw_only=True, eq=False)
class _OnePart(DBA):
    """The data of an attacker of :class:`DBA`."""

    part: int = 0

    def mask(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        return self.bar(self.part, shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelReplacement(Backdoor):
    r"""Model replacement: a backdoor whose updates are so long that averaging puts it in place of the model.

    .. math:: \tilde g_k = \beta \, \frac{K}{a} \, g_k

    With K clients in the mean and a attackers among them, their updates add up to the mean update of the attackers
    (for :math:`\beta = 1`): the new model is theirs, plus the small mean of the honest updates. A single attacker
    has the paper's factor :math:`\gamma = n / \eta` for a server that averages over all n clients (:math:`\eta` is
    n divided by the number of averaged clients there).

    Parameters
    ----------
    boost
        :math:`\beta`: a part, or a multiple, of that factor.
    target, share, size, value, corner
        As in :class:`Backdoor`.

    Notes
    -----
    The attackers know K, and not how many clients are selected. If fewer are, their updates are too long by K over
    that number. The paper attacks once, near the end of the training: use ``sleeper`` with this as inner attack.

    References
    ----------
    Bagdasaryan et al., How to backdoor federated learning (AISTATS 2020), equation 3.
    """

    def factor(self, view: AttackerView) -> float:
        """Return the factor that replaces a mean over all clients."""
        return self.boost * view.num_clients / len(view.attackers)


@dataclass(frozen=True, kw_only=True, eq=False)
class ConstrainAndScale(ModelReplacement):
    r"""Constrain and scale: model replacement by models that were trained to stay near the global model.

    .. math:: L = \alpha \, L_{class} + (1 - \alpha) \, \|w - w_t\|

    The attackers train with this loss on the marked pictures. Their updates are shorter than those of
    :class:`ModelReplacement`, and so are the enlarged ones.

    Parameters
    ----------
    constraint
        :math:`1 - \alpha`.
    boost, target, share, size, value, corner
        As in :class:`ModelReplacement`.

    Notes
    -----
    The distance is part of the loss that is differentiated, so it acts on the training. It does so in the simulator;
    the self-test trains without it.

    References
    ----------
    Bagdasaryan et al., How to backdoor federated learning (AISTATS 2020), equation 4, with the distance of the
    authors' code.
    """

    constraint: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("constraint", self.constraint)


@dataclass(frozen=True, kw_only=True, eq=False)
class Neurotoxin(Backdoor):
    r"""Neurotoxin: a backdoor that leaves out the coordinates in which the global model moved most.

    .. math:: \tilde g_{kj} = 0 \;\; \text{for the } \lceil k d \rceil \text{ coordinates } j
              \text{ with the largest } |w_{t,j} - w_{t-1,j}|, \qquad \text{else } g_{kj}

    Honest clients rarely change the other coordinates, so they do not undo the backdoor later.

    Parameters
    ----------
    masked
        k: the share of the coordinates that is left out.
    target, share, size, value, corner, boost
        As in :class:`Backdoor`.

    Notes
    -----
    The paper projects each local gradient; here the finished update is projected, once. In the first round, and
    after a round in which the model did not move, nothing is left out.

    References
    ----------
    Zhang et al., Neurotoxin: durable backdoors in federated learning (ICML 2022); 5 % as in most of the authors'
    experiments.
    """

    masked: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("masked", self.masked)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the updates of training on the marked pictures, zero where the last step was large."""
        rows, step = super().__call__(view), view.last_step
        if rows is None or step is None or not np.any(step):
            return rows
        largest = np.argsort(-np.abs(step), kind="stable")[: int(np.ceil(self.masked * len(step)))]
        rows = rows.copy()
        rows[:, largest] = 0
        return rows
