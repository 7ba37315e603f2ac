"""Reference pages of the catalogue: each name with its description and options, as ``mabrfl list KIND NAME`` prints."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from docstrings import as_markdown, described, sections
from mabrfl import catalog
from mabrfl.catalog.kinds import NEEDS, DatasetDefaults, Kind
from mabrfl.cli.listing import PARTITIONS, section_of
from markup import code, table

_PAGES: dict[Kind, tuple[str, str]] = {
    "defenses": ("Defenses", "The rules that `--defense` names."),
    "presets": ("Presets of MAB-RFL", "What `--preset` names: all options of MAB-RFL at once."),
    "preaggregators": ("Pre-aggregators", "What `--before` names: each mixes or scales updates in front of a rule."),
    "selectors": ("Selectors", "What `--selector` names: each chooses the clients of a round."),
    "attacks": ("Attacks", "What `--attack` names."),
    "observers": ("Trackers", "What `--track` names."),
}
_LEFT_OUT = ("Parameters", "Attributes", "Returns", "Raises")


def catalog_pages() -> list[tuple[str, str, str]]:
    """Return a page per kind, and one of data sets, models and partitions: title, path and text."""
    pages = [(title, f"reference/{kind}.md", _page(kind, title, line)) for kind, (title, line) in _PAGES.items()]
    return [*pages, ("Data sets, models, partitions", "reference/datasets.md", _data_page())]


def _page(kind: Kind, title: str, line: str) -> str:
    names = catalog.BUILT_IN[kind]
    intro = f"{line} `mabrfl list {kind} NAME` prints the same for one of them."
    return "\n\n".join([f"# {title}", intro, *(_name(kind, name) for name in names)]) + "\n"


def _name(kind: Kind, name: str) -> str:
    own = catalog.entry(kind, name)
    text = inspect.getdoc(catalog.resolve_name(kind, name)) or "" if own.target else ""
    parts = sections(text)
    body = "" if kind == "presets" or own.fixed else as_markdown(parts[""])
    line = own.line if not body or not body.startswith(own.line) else ""
    needs = f"Needs {', '.join(NEEDS[word] for word in own.needs)}." if own.needs else ""
    more = [f"**{title}**\n\n{as_markdown(part)}" for title, part in parts.items() if title and title not in _LEFT_OUT]
    return "\n\n".join(filter(None, [f"## {name}", line, body, needs, _options(kind, name, parts), *more]))


def _options(kind: Kind, name: str, parts: dict[str, str]) -> str:
    """Return the options of a name as a table with their meaning."""
    if kind == "defenses" and catalog.entry(kind, name).presets:
        return "Its options are those of its preset: see [presets](presets.md)."
    meanings: dict[str, str] = {}
    for names, text in described(parts.get("Parameters", "") + "\n" + parts.get("Attributes", "")):
        meanings |= dict.fromkeys(names, text)
    options = catalog.list_options(kind, name)
    rows = [
        [code(each.name), code(each.default) or "needed", _type(each.type), meanings.get(each.name, "")]
        for each in options
    ]
    where = f"Options, set by `--set {section_of(kind)}.NAME=VALUE`:\n\n"
    return where + table(["option", "default", "type", "meaning"], rows) if rows else ""


def _data_page() -> str:
    settings = [each.name for each in fields(DatasetDefaults)]
    sets = catalog.BUILT_IN["datasets"]
    values = [
        [code(name), own.line, *(_value(getattr(own.defaults, each)) for each in settings)]
        for name, own in sets.items()
    ]
    models = [[code(name), line] for name, line in catalog.describe("models")]
    return "\n\n".join(
        [
            "# Data sets, models, partitions",
            "## Data sets",
            "With the settings that a data set decides where you do not:",
            table(["name", "data", *map(code, settings)], values),
            "## Models",
            table(["name", "model"], models),
            "## Partitions",
            "What `--set partition.kind=NAME` names; [the settings](settings.md#partition) say more.",
            table(["name", "partition"], [[code(name), line] for name, line in PARTITIONS]),
        ]
    )


def _type(text: str) -> str:
    return " or ".join(map(code, text.replace(" | ", " or ").split(" or "))) if text else ""


def _value(value: Any) -> str:
    return code(list(value) if isinstance(value, tuple) else value)
