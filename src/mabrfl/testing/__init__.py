"""Checks for rules, selectors, attacks, data sets and observers of your own; the package's own must pass them too.

Each function calls the object as a run would and raises an ``AssertionError`` that names the property that does not
hold. They need no test framework:

>>> from mabrfl.aggregation import Median
>>> check_rule(Median)
"""

from mabrfl.testing.attack_checks import check_attack, make_view
from mabrfl.testing.defense_checks import check_rule, check_selector
from mabrfl.testing.run_checks import check_dataset, check_observer

__all__ = ["check_attack", "check_dataset", "check_observer", "check_rule", "check_selector", "make_view"]
