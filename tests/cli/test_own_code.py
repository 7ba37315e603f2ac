"""What the command line says about a user's own rule or attack that fails, and about its reasons."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mabrfl.recording import read_rounds

OWN = """
import numpy as np

from mabrfl import Decision
from mabrfl.attacks import Attack


def helper(cohort):
    return cohort.nothing


def broken(cohort):
    return helper(cohort)


def not_a_number(cohort):
    return Decision(weights=np.full(len(cohort), np.nan))


def loud(cohort):
    loudest = cohort.norms == cohort.norms.max()
    return Decision(weights=~loudest / len(cohort), reasons=["too-loud" if each else "accepted" for each in loudest])


class Spy(Attack):
    knowledge = "partial"
    trains = False

    def __call__(self, view):
        return -view.benign[:1].repeat(len(view.attackers), axis=0)


class Failing(Spy):
    def __call__(self, view):
        raise OSError
"""
RUN = ("run", "--rounds", "2", "--workers", "1", "--clients", "6", "--no-plots", "--set", "partition.sizes=[8, 16]")


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owned.py").write_text(OWN)
    monkeypatch.setattr(sys.modules["mabrfl.recording.manifest"], "source_commit", lambda package: None)
    monkeypatch.delitem(sys.modules, "owned", raising=False)


def test_an_error_in_a_rule_is_one_line_with_its_name_file_and_line(mabrfl: Callable[..., Any]) -> None:
    done = mabrfl(*RUN, "--defense", "owned:broken", "--quiet")
    assert done.code == 11
    assert done.err == (
        "error: your defense 'owned:broken' failed at line 9 of owned.py (return cohort.nothing): "
        "AttributeError: 'Cohort' object has no attribute 'nothing'\n"
    )


def test_an_error_in_an_attack_is_told_from_one_in_the_rule(mabrfl: Callable[..., Any]) -> None:
    attack = ("--attack", "owned:Failing", "--attackers", "2")
    done = mabrfl(*RUN, "--defense", "owned:not_a_number", *attack, "--quiet")
    assert done.code == 11
    assert "error: your attack 'owned:Failing' failed at line 35 of owned.py (raise OSError): OSError\n" in done.err


def test_weights_that_are_no_numbers_are_warned_about(mabrfl: Callable[..., Any]) -> None:
    for quiet in ((), ("--quiet",)):
        done = mabrfl(*RUN, "--defense", "owned:not_a_number", *quiet)
        assert done.code == 0
        text = " ".join((done.err if quiet else done.out).split())
        assert "warning: in 2 of 2 rounds the defense gave a step with NaN or infinite numbers" in text


def test_an_attack_that_declares_its_knowledge_by_a_word_and_a_rule_with_reasons_of_its_own_run(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    done = mabrfl(*RUN, "--defense", "owned:loud", "--attack", "owned:Spy", "--attackers", "2", "--out", "o")
    assert done.code == 0
    assert "rejected otherwise 1" in done.out
    for record in read_rounds(tmp_path / "o").records:
        assert [verdict.reason for verdict in record.verdicts.values() if not verdict.accepted] == ["too-loud"]
        assert (record.otherwise_rejected, record.sybils, record.outliers) == (1, 0, 0)


def test_list_shows_the_description_and_the_options_of_a_name(mabrfl: Callable[..., Any]) -> None:
    both = [mabrfl("list", *words).out for words in (("attacks", "lie"), ("attack", "lie"), ("lie",))]
    assert both[0] == both[1] == both[2]
    assert both[0].startswith("lie (attack)\nA little is enough: ")
    assert "Options, set by --set attack_options.NAME=VALUE:\n  z           default None  float | None\n" in both[0]
    assert "  inner          default 'lie'  str\n" in mabrfl("list", "sleeper").out
    assert "  separation_whole " in mabrfl("list", "presets", "hardened").out
    assert "mabrfl list presets hardened" in mabrfl("list", "defenses", "mab-rfl").out
    assert mabrfl("list", "mnist").out == "mnist (data set)\n28x28 handwritten digits, 60,000 + 10,000 images\n\n"
    assert mabrfl("list", "defenses", "owned:loud").out.startswith("owned:loud (defense)\nIt has no description.")
