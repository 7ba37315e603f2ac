"""What holds for every selector, and for the data set that comes with the package."""

from __future__ import annotations

from functools import partial

import pytest

from mabrfl.catalog import build_dataset, build_selector
from mabrfl.catalog.names import BUILT_IN
from mabrfl.selection import ACS
from mabrfl.testing import check_dataset, check_selector


@pytest.mark.parametrize("name", BUILT_IN["selectors"])
def test_every_selector_keeps_the_contract(name: str) -> None:
    check_selector(build_selector(name))


@pytest.mark.parametrize("options", [{"inclusion": "cutoffs"}, {"empty_selection": "all"}, {"warmup_rounds": 5}])
def test_every_variant_of_acs_keeps_the_contract(options: dict[str, object]) -> None:
    check_selector(partial(ACS, **options))


def test_digits_keep_the_contract_of_data_sets() -> None:
    check_dataset(partial(build_dataset, "digits"))
