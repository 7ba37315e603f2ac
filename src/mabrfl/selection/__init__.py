"""Stage 1, select: the clients that take part in a round."""

from mabrfl.selection.budget import Budgeted
from mabrfl.selection.thompson import ACS, ThompsonTop
from mabrfl.selection.uniform import All, Uniform

__all__ = ["ACS", "All", "Budgeted", "ThompsonTop", "Uniform"]
