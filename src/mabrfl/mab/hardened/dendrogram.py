"""Hierarchical clustering of many clients: all groups and their sums, with work and memory of n².

A group is never a mask of its own. It is a branch of the tree, and its sums are those of the two branches that it
was made of, and one sum across.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.cluster import hierarchy

from mabrfl.vectors.pairs import Indices, Matrix, Vector, block_sum, row_sums, upper_triangle


@dataclass(frozen=True)
class Branches:
    """The groups of a hierarchical clustering of n clients, in the order in which they were formed.

    Leaves and the root are left out. A group of more than half of the clients stands for the others, those outside
    it: so each entry is a group of at most half, and no sum is the small difference of large ones.

    Attributes
    ----------
    tree
        Where the groups are.
    size
        How many clients each group has.
    within
        Sum of the cosines between the members of each group, those with themselves included.
    toward
        Sum of the cosines between the members of each group and all clients.
    total
        Sum of all cosines.
    """

    tree: Tree
    size: Indices
    within: Vector
    toward: Vector
    total: float

    def sums(self, values: Vector) -> Vector:
        """Return the sum of the members' values for each group."""
        return self.tree.sums(values)[self.tree.groups]

    def members(self, group: int, *, others: bool = False) -> Indices:
        """Return who belongs to a group, or who does not, in ascending order."""
        return self.tree.members(self.tree.groups.start + group, others=others)


def branches(cosines: Matrix, members: Indices | None = None) -> Branches:
    """Cluster at least two clients by Ward's method; take all of them, or the rows and columns of ``members``."""
    # Ward's method needs the distances between unit vectors only, not the vectors.
    distances = upper_triangle(cosines, members)
    distances *= -2
    distances += 2
    np.maximum(distances, 0, out=distances)
    np.sqrt(distances, out=distances)
    tree = Tree(hierarchy.linkage(distances, method="ward"))
    del distances
    everybody = row_sums(cosines, members)
    rows = np.arange(tree.n) if members is None else members

    def across(one: Indices, other: Indices) -> float:
        return 2 * block_sum(cosines, rows[one], rows[other])

    groups = tree.groups
    return Branches(
        tree,
        size=tree.sums(np.ones(tree.n))[groups].astype(np.intp),
        within=tree.sums(cosines[rows, rows], across)[groups],
        toward=tree.sums(everybody)[groups],
        total=float(everybody.sum()),
    )


class Tree:
    """The tree of a hierarchical clustering of n clients.

    Nodes are the clients, 0 to n - 1, then the groups as they were formed, up to the root.

    Parameters
    ----------
    linkage
        What SciPy's ``linkage`` returns.
    """

    def __init__(self, linkage: Matrix) -> None:
        self.n = len(linkage) + 1
        self.groups = slice(self.n, 2 * self.n - 2)
        self._merges: list[list[int]] = linkage[:, :2].astype(int).tolist()
        self._size = [1] * self.n
        for left, right in self._merges:
            self._size.append(self._size[left] + self._size[right])
        self._start = [0] * len(self._size)
        self._large: list[tuple[int, int]] = []  # nodes of more than half, the largest first, and who is beside each
        for node in range(2 * self.n - 2, self.n - 1, -1):
            left, right = self._merges[node - self.n]
            self._start[left] = self._start[node]
            self._start[right] = self._start[node] + self._size[left]
            self._large += [pair for pair in ((left, right), (right, left)) if 2 * self._size[pair[0]] > self.n]
        self._order = np.argsort(self._start[: self.n])

    def members(self, node: int, *, others: bool = False) -> Indices:
        """Return who is in a node, or who is not; the other way round for a node of more than half."""
        outside = others != (2 * self._size[node] > self.n)
        return np.sort(self._outside(node) if outside else self._inside(node))

    def sums(self, values: Vector, across: Callable[[Indices, Indices], float] | None = None) -> Vector:
        """Return the sum of the clients' values in each node; for a node of more than half, of those outside it.

        ``across`` says what two disjoint sets of clients have together beside their values. It is asked about every
        pair of clients at most once.
        """
        total: list[float] = values.tolist()
        for node, (left, right) in enumerate(self._merges, start=self.n):
            both = 0.0
            if across is not None and 2 * self._size[node] <= self.n:
                both = across(self._inside(left), self._inside(right))
            total.append(total[left] + total[right] + both)
        outside, before = 0.0, 2 * self.n - 2
        for node, beside in self._large:
            outside += total[beside]
            if across is not None:
                outside += across(self._outside(before), self._inside(beside))
            total[node], before = outside, node
        return np.array(total)

    def _inside(self, node: int) -> Indices:
        return self._order[self._start[node] : self._start[node] + self._size[node]]

    def _outside(self, node: int) -> Indices:
        start = self._start[node]
        return np.concatenate([self._order[:start], self._order[start + self._size[node] :]])
