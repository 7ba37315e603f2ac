"""The reference, made from the code: commands, exit codes, settings, names, records, events, Python names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

import mabrfl
from catalog_pages import catalog_pages
from docstrings import as_markdown, described, sections
from mabrfl import errors
from mabrfl.cli.app import COMMANDS, load_command
from mabrfl.config import RunConfig
from mabrfl.config.model import PartitionConfig, TrainingConfig
from mabrfl.recording import RoundRecord
from mabrfl.recording.meanings import EVENTS, FOLDER, MANIFEST, SUMMARY
from markup import code, table

_PACKAGE = Path(mabrfl.__file__).parent
_OTHER_CODES = {
    "0": "Done.",
    "1": "Standard output was closed, or its disk is full; or an error of ours that has no code of its own.",
    "2": "Wrong usage: an unknown command or option.",
    "130": "Ctrl-C.",
    "143": "Terminated.",
}


@cache
def reference_pages() -> list[tuple[str, str, str]]:
    """Return all generated pages in the order of the nav: title, path and text."""
    python = [
        (f"Python: {module}", f"reference/python-{module.rpartition('.')[2]}.md", _api_page(module))
        for module in (
            "mabrfl",
            "mabrfl.attacks",
            "mabrfl.flower",
            "mabrfl.nvflare",
            "mabrfl.testing",
            "mabrfl.recording",
        )
    ]
    return [
        ("Commands", "reference/commands.md", _commands_page()),
        ("Exit codes", "reference/exit-codes.md", _exit_codes_page()),
        ("Settings of a run", "reference/settings.md", _settings_page()),
        *catalog_pages(),
        ("Files of a run", "reference/records.md", _records_page()),
        ("Events", "reference/events.md", _events_page()),
        *python,
    ]


def _commands_page() -> str:
    parts = [
        "# Commands",
        "`mabrfl COMMAND --help` prints the same. `mabrfl --install-completion` completes names in your shell.",
    ]
    for name, (_, line) in COMMANDS.items():
        for words, command in _with_subcommands(f"mabrfl {name}", load_command(name)):
            parts += [f"## {words}", _help(command, line), _parameters(command)]
    return "\n\n".join(parts)


def _with_subcommands(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _with_subcommands(f"{words} {name}", each)


def _help(command: click.Command, line: str) -> str:
    return as_markdown((command.help or line).replace("\b", "").replace("<", "&lt;"))


def _parameters(command: click.Command) -> str:
    rows = []
    for each in command.params:
        if each.name == "help" or getattr(each, "hidden", False):
            continue
        names = [(each.name or "").upper()] if isinstance(each, click.Argument) else [*each.opts, *each.secondary_opts]
        default = each.default if isinstance(each.default, str | int | float) and each.default is not False else ""
        rows.append([" ".join(map(code, names)), (getattr(each, "help", "") or "").replace("<", "&lt;"), code(default)])
    return table(["argument or option", "meaning", "default"], rows) if rows else ""


def _exit_codes_page() -> str:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MabRflError)]
    own = [
        [code(kind.exit_code), code(kind.__name__), as_markdown(kind.__doc__ or "")]
        for kind in kinds
        if kind.exit_code > 2
    ]
    rows = [[code(number), "", text] for number, text in _OTHER_CODES.items()] + own
    intro = "What a command of `mabrfl` returns to the shell, and the Python error of the same kind (`mabrfl.errors`)."
    return "\n\n".join(
        ["# Exit codes", intro, table(["code", "error", "meaning"], sorted(rows, key=lambda row: int(row[0][1:-1])))]
    )


def _settings_page() -> str:
    intro = (
        "The keys of a configuration file, of `--set KEY=VALUE` and of `RunConfig`. A default of `None` is decided "
        "by the data set, the defense or the preset; the `config.toml` of a run has the value."
    )
    titles = {"Run": RunConfig, "training": TrainingConfig, "partition": PartitionConfig}
    return "\n\n".join(["# Settings of a run", intro, *(_section(title, kind) for title, kind in titles.items())])


def _section(title: str, kind: Any) -> str:
    prefix = "" if title == "Run" else f"{title}."
    schema = kind.model_json_schema()["properties"]
    rows = []
    for names, text in described(sections(kind.__doc__)["Attributes"]):
        for name in names:
            default = kind.model_fields[name].default
            shown = "see below" if name in ("training", "partition") else code(repr(default))
            rows.append([code(f"{prefix}{name}"), shown, _values(schema[name]), text])
    return f"## {title}\n\n" + table(["setting", "default", "values", "meaning"], rows)


def _values(schema: Mapping[str, Any]) -> str:
    """Return in words which values a setting may have."""
    for each in schema.get("anyOf", ()):
        if each.get("type") != "null":
            return _values(each)
    if "enum" in schema:
        return " or ".join(map(code, schema["enum"]))
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    bounds = [f"above {low:g}" if "exclusiveMinimum" in schema else f"from {low:g}"] if low is not None else []
    bounds += [f"to {high:,g}"] if high is not None and high < 1e6 else []
    return " ".join([str(schema.get("type", "")), *bounds])


def _records_page() -> str:
    parts = ["# Files of a run", "`mabrfl run --out FOLDER` writes:", table(["file", "what"], _pairs(FOLDER))]
    rounds = [
        [", ".join(map(code, names)), text]
        for names, text in described(sections(RoundRecord.__doc__ or "")["Attributes"])
    ]
    parts += [
        "## rounds.jsonl",
        "Each line is an object with these fields; NaN and infinities are null.",
        table(["field", "meaning"], rounds),
    ]
    parts += [
        "A verdict has `id`, `accepted`, `reason` (`accepted`, `sybil`, `outlier`, `malformed`, or a word of your own "
        "rule), `evidence`, and `credit` if it is not 1; [what the numbers mean](../explain.md#what-the-numbers-mean). "
        "`reputation` is a list of `[id, B, M]`."
    ]
    parts += [
        "## summary.json",
        table(["field", "meaning"], _pairs(SUMMARY)),
        "## manifest.json",
        table(["field", "meaning"], _pairs(MANIFEST)),
    ]
    return "\n\n".join(parts)


def _events_page() -> str:
    intro = (
        "Events are notes on a round as a whole: `events` in `rounds.jsonl`, in the audit and in `outcome.events`. "
        "An event is a word, and after a colon the numbers. [Alerts](../operations.md#be-warned) of a Flower server "
        "are another list."
    )
    return "\n\n".join(["# Events", intro, table(["event", "meaning"], _pairs(EVENTS))])


def _pairs(meanings: Mapping[str, str]) -> list[list[str]]:
    return [[", ".join(map(code, name.split(", "))), text] for name, text in meanings.items()]


def _api_page(module: str) -> str:
    names = sorted((name for name in _public_names(module) if not name.startswith("__")), key=str.lower)
    return "\n\n".join([f"# {module}", *(f"::: {module}.{name}" for name in names)]) + "\n"


def _public_names(module: str) -> list[str]:
    """Return ``__all__`` of a module, which may need packages that are not installed: it is read, not imported."""
    path = _PACKAGE.joinpath(*module.split(".")[1:], "__init__.py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{module} has no __all__")
