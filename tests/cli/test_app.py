"""``mabrfl --help`` lists the commands without importing them; a command is imported when it is called."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from mabrfl.cli.app import COMMANDS, load_command
from mabrfl.cli.main import main


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_help_is_the_first_line_of_the_command(name):
    command = load_command(name)
    assert command.name == name
    assert (command.help or "").partition("\n\n")[0].replace("\n", " ") == COMMANDS[name][1]


def test_help_imports_no_command_and_shows_every_one():
    script = (
        "import sys; from mabrfl.cli.main import main; main(['--help']);"
        "print(*(name for name in sys.modules if name.partition('.')[0] in ('numpy', 'pydantic', 'torch')))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *shown, heavy = run.stdout.splitlines()
    assert heavy == ""
    first_words = [line.removeprefix("│ ").partition(" ")[0] for line in shown]  # empty where a line goes on
    assert [word for word in first_words if word in COMMANDS] == list(COMMANDS)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mabrfl wa", {"watch"}),
        ("mabrfl run --no-pl", {"--no-plots"}),
        ("mabrfl run --defense median-", {"median-of-means"}),
        ("mabrfl run --attack optimal-", {"optimal-lie", "optimal-ipm"}),
        ("mabrfl run --before nn", {"nnm"}),
        ("mabrfl run --preset re", {"reference"}),
        ("mabrfl run --track mlf", {"mlflow"}),
        ("mabrfl list atta", {"attacks"}),
        ("mabrfl list attacks label", {"label-flip"}),
        ("mabrfl list nothing label", set()),
        ("mabrfl plot results --figure isol", {"isolation"}),
        ("mabrfl data fetch dig", {"digits"}),
    ],
)
def test_the_shell_completes_commands_options_and_names(
    typed: str, offered: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = typed.split()
    monkeypatch.setenv("_MABRFL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with contextlib.suppress(SystemExit):
        main([])
    assert set(capsys.readouterr().out.split()) == offered
