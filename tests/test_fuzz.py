"""A short campaign of :mod:`fuzzing`; ``make fuzz`` runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzing import KINDS, fuzz, prepared

SEED = 20261118


@pytest.fixture(scope="module")
def folder():
    with prepared() as place:
        yield place


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_with_an_error_of_ours(folder: Path, kind: str) -> None:
    refused, failures = fuzz(folder, kind, range(40), SEED)
    assert not failures, "\n".join(failures)
    # These are never refused: the older state is used, the round is evaluated again, or a warning is logged.
    assert refused > 0 or kind in ("checkpoint", "evaluation", "request")
