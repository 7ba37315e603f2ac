r"""Sybils that are not similar: a common direction, hidden in noise or spread over groups.

With a common unit vector a, and for each client its own noise n orthogonal to it,

.. math:: \tilde g_k = L \, (\sqrt c \, a + \sqrt{1 - c} \, n_k), \qquad \cos(\tilde g_j, \tilde g_k) = c,

so the mutual cosine can be chosen freely, up to about :math:`1/\sqrt d` from the random cosine of two noises. The
average over many clients cancels the noise, and the push, :math:`\sqrt c` of each, is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mabrfl import vectors
from mabrfl.attacks._directions import (
    Noise,
    Vector,
    benign_course,
    check_fraction,
    each_sends,
    leaning,
    noise_of,
    random_unit,
)
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive, check_whole
from mabrfl.errors import ConfigError
from mabrfl.rng import ClientId
from mabrfl.updates import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitSybils(Attack):
    r"""Split sybils: k groups of copies that push against the benign mean, each group with its own noise.

    .. math:: \tilde g_k = s L \, (-\sqrt c \, \hat u + \sqrt{1 - c} \, n_{group(k)})

    with :math:`\hat u` the direction of the benign mean, L the median benign length, and orthogonal noises of the
    groups: the cosine is 1 within a group and c between groups. A screen that removes only the largest group of a
    round accepts the other k-1.

    Parameters
    ----------
    groups
        k. The adversary's clients are assigned in turn, once for the whole run.
    cosine
        c: cosine between two groups; each pushes with :math:`\sqrt c` of its length.
    scale
        s: length relative to a benign update.
    noise
        ``"fresh"``: new in each round; ``"fixed"``: the same for the whole run.
    """

    groups: int = 3
    cosine: float = 0.25
    scale: float = 1.0
    noise: Noise = "fresh"

    knowledge = Knowledge.PARTIAL
    trains = False

    def __post_init__(self) -> None:
        check_whole("groups", self.groups, at_least=1)
        check_fraction("cosine", self.cosine)
        check_positive("scale", self.scale)
        check_choice("noise", self.noise, get_args(Noise))

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the row of each attacker's group; None without a benign update."""
        benign = benign_course(view)
        if benign is None:
            return None
        course, length = benign
        noises: list[Vector] = []
        for group in range(self.groups):
            noises.append(noise_of(view, "split-sybils", group, self.noise, [course, *noises]))
        rows = [self.scale * length * leaning(-course, noise, math.sqrt(self.cosine)) for noise in noises]
        return each_sends(view, lambda _, client: rows[view.controlled.index(client) % self.groups])


@dataclass(frozen=True, kw_only=True, eq=False)
class JitteredSybils(Attack):
    r"""Jittered sybils: a common push hidden in noise, so that all cosines stay below a threshold.

    .. math:: \tilde g_k = s L \, (\sqrt c \, a + \sqrt{1 - c} \, n_k)

    with L the median benign length. A defense does not link two attackers whose cosine c is below its threshold,
    but the mean of f of them is almost :math:`\sqrt c \, a`.

    Parameters
    ----------
    cosine
        c: just below the defense's threshold for sybils; the paper's for MNIST falls from 0.7 to 0.3.
    direction
        a: ``"against-mean"``, opposite to the benign mean, or ``"random"``, drawn once for the run.
    scale
        s: length relative to a benign update.
    noise
        ``"fresh"``: new in each round; ``"fixed"``: each client keeps its own.
    """

    cosine: float = 0.25
    direction: Literal["against-mean", "random"] = "against-mean"
    scale: float = 1.0
    noise: Noise = "fresh"

    knowledge = Knowledge.PARTIAL
    trains = False

    def __post_init__(self) -> None:
        check_fraction("cosine", self.cosine)
        check_choice("direction", self.direction, ("against-mean", "random"))
        check_positive("scale", self.scale)
        check_choice("noise", self.noise, get_args(Noise))

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return one row per attacker; None without a benign update."""
        benign = benign_course(view)
        if benign is None:
            return None
        course, length = benign
        random = self.direction == "random"
        push = random_unit(view.lasting_rng("jittered-sybils-push"), view.shape[1]) if random else -course

        def row(_: int, client: ClientId) -> Vector:
            noise = noise_of(view, "jittered-sybils", client, self.noise, [push])
            return self.scale * length * leaning(push, noise, math.sqrt(self.cosine))

        return each_sends(view, row)


@dataclass(frozen=True, kw_only=True, eq=False)
class OrthogonalDrift(Attack):
    r"""Orthogonal drift: all push in one random direction, the same for the whole run, hidden in noise.

    .. math:: \tilde g_k = s \, \|g_k\| \, (\sqrt c \, a + \sqrt{1 - c} \, n_k)

    A random direction is almost orthogonal to the benign mean, so no single round shows an opposition. But it adds
    up from round to round, while honest differences average out. Each attacker takes the length of its own honest
    update, so the attack needs no knowledge.

    Parameters
    ----------
    cosine
        c: cosine between two attackers.
    scale
        s: length relative to the attacker's honest update.
    noise
        ``"fresh"``: new in each round; ``"fixed"``: each client keeps its own.

    References
    ----------
    The principle of Xie et al., Model poisoning attacks to federated learning via multi-round consistency
    (PoisonedFL, CVPR 2025), which also adapts the length.
    """

    cosine: float = 0.25
    scale: float = 1.0
    noise: Noise = "fresh"

    knowledge = Knowledge.AGNOSTIC

    def __post_init__(self) -> None:
        check_fraction("cosine", self.cosine)
        check_positive("scale", self.scale)
        check_choice("noise", self.noise, get_args(Noise))

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return one row per attacker."""
        if view.own_updates is None:
            return None
        push = random_unit(view.lasting_rng("orthogonal-drift-push"), view.shape[1])
        lengths = np.nan_to_num(self.scale * vectors.row_norms(view.own_updates))

        def row(place: int, client: ClientId) -> Vector:
            noise = noise_of(view, "orthogonal-drift", client, self.noise, [push])
            return np.asarray(lengths[place] * leaning(push, noise, math.sqrt(self.cosine)))

        return each_sends(view, row)


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoy(Attack):
    r"""Decoy: some attackers push openly against the benign mean, so that the screen removes them and not the others.

    .. math:: \tilde g_k = s L \, (-p_k \, \hat u + \sqrt{1 - p_k^2} \, n_k), \qquad
              p_k = p_{decoy} \text{ or } p

    with :math:`\hat u` the direction of the benign mean and L the median benign length. A screen that removes one
    group, or splits the clients in two, removes the decoys only.

    Parameters
    ----------
    share
        The share of the adversary's clients that are decoys, at least one; fixed for the run.
    decoy_push
        Cosine of a decoy with the reverse of the benign mean.
    push
        The same for the others: a weaker push that should pass.
    scale
        s: length relative to a benign update.

    References
    ----------
    Li et al., 3DFed: adaptive and extensible framework for covert backdoor attack in federated learning (IEEE
    S&P 2023) sends decoy models for the same purpose.
    """

    share: float = 0.3
    decoy_push: float = 0.9
    push: float = 0.3
    scale: float = 1.0

    knowledge = Knowledge.PARTIAL
    trains = False

    def __post_init__(self) -> None:
        for name in ("share", "decoy_push", "push"):
            check_fraction(name, getattr(self, name))
        check_positive("scale", self.scale)
        if self.push > self.decoy_push:
            raise ConfigError(f"push must be at most decoy_push = {self.decoy_push}; got {self.push}")

    def decoys(self, view: AttackerView) -> frozenset[ClientId]:
        """Return which of the adversary's clients are decoys: the first ones."""
        return frozenset(view.controlled[: max(1, round(self.share * len(view.controlled)))])

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return one row per attacker; None without a benign update."""
        benign = benign_course(view)
        if benign is None:
            return None
        course, length = benign
        decoys = self.decoys(view)

        def row(_: int, client: ClientId) -> Vector:
            noise = noise_of(view, "decoy", client, "fresh", [course])
            return self.scale * length * leaning(-course, noise, self.decoy_push if client in decoys else self.push)

        return each_sends(view, row)
