"""Selection that ignores beliefs: everybody, or m of K at random."""

from __future__ import annotations

import numpy as np

from mabrfl.checks import check_whole
from mabrfl.updates import Candidates, Selection


class All:
    """Everybody takes part in every round."""

    def __call__(self, candidates: Candidates) -> Selection:
        """Select; see the class."""
        return Selection(candidates.ids)


class Uniform:
    """m of K clients, uniformly at random without replacement.

    Parameters
    ----------
    num_selected
        m, the number of clients per round; all of them if there are fewer.
    """

    def __init__(self, *, num_selected: int = 10) -> None:
        check_whole("num_selected", num_selected, at_least=1)
        self.num_selected = num_selected

    def __call__(self, candidates: Candidates) -> Selection:
        """Select; see the class."""
        # The m smallest of K independent uniform numbers are a uniform m-subset.
        chosen = np.argsort(candidates.uniforms("uniform"), kind="stable")[: self.num_selected]
        return Selection([candidates.ids[k] for k in sorted(chosen)])
