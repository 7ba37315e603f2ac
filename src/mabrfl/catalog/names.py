"""Names and their entries: the package's own, those of entry points, and ``module:Name``."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from mabrfl.catalog.entries import ADAPTERS, ALIASES, BUILT_IN
from mabrfl.catalog.kinds import NEEDS, SINGULAR, Conditions, DatasetDefaults, Entry, Kind
from mabrfl.errors import ConfigError, MabRflError, suggest

_PACKAGE = Path(__file__).resolve().parents[1]
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


def known_name(kind: Kind, name: str) -> str:
    """Return the name by which the catalogue knows something; an alias becomes the name it stands for.

    Raises
    ------
    ConfigError
        If there is no such name; with the nearest one.
    """
    name = ALIASES.get(kind, {}).get(name, name)
    if _own_entry(kind, name) is not None or _is_target(kind, name) or name in _entry_points(kind):
        return name
    if ":" in name and kind != "presets":
        raise ConfigError(f"{SINGULAR[kind]} '{name}' is not of the form module:Name")
    short = [alias for alias in ALIASES.get(kind, {}) if ":" not in alias]
    raise ConfigError(
        f"unknown {SINGULAR[kind]} '{name}'{suggest(name, [*BUILT_IN[kind], *short, *_entry_points(kind)])}"
    )


def entry(kind: Kind, name: str) -> Entry:
    """Return the entry of a name; that of a plug-in or of ``module:Name`` is read from attributes of the target.

    Raises
    ------
    ConfigError
        If the name is unknown, its target cannot be imported, or one of its attributes is no value for an entry.
    """
    name = known_name(kind, name)
    return _own_entry(kind, name) or _read_entry(kind, name)


def display_entry(kind: Kind, name: str) -> Entry:
    """Return the entry of a name that stands in a file of results, for tables and figures.

    No error and no surprise: ``module:Name`` is not imported, because it would run the code that a file names. Such a
    name, and one that is not known here, has its last part as its label; a selector of that kind may learn.
    """
    try:
        if not _is_target(kind, known := known_name(kind, name)):
            return entry(kind, known)
    except ConfigError:
        pass
    return Entry(target=name, label=name.rpartition(":")[2] or name, learns=kind == "selectors")


def effective_preset(defense: str, preset: str) -> str:
    """Return a preset; nothing if it sets neither the options of this defense nor conditions of the run.

    Examples
    --------
    >>> [effective_preset("median", preset) for preset in ("hardened", "paper", "reference")]
    ['', '', 'reference']
    """
    conditions = display_entry("presets", preset).conditions
    return preset if display_entry("defenses", defense).presets or conditions != Conditions() else ""


def own_target(kind: Kind, name: str) -> str | None:
    """Return ``module:Name`` of a name that is the user's own: a plug-in's, or itself; None of one of this package's.

    Nothing is imported. The text is empty for a name that nobody knows, such as that of a plug-in that was removed.
    """
    if _own_entry(kind, name) is not None or name in ALIASES.get(kind, {}):
        return None
    points = {} if _TARGET.fullmatch(name) else _entry_points(kind)
    target = points[name].value if name in points else name
    if not _TARGET.fullmatch(target):
        return ""
    return None if target.partition(":")[0].partition(".")[0] == _PACKAGE.name else target


def resolve_name(kind: Kind, name: str) -> Any:
    """Return the class, function or object of a name.

    Names of the package come first, then those of installed packages' entry points in the group
    ``mabrfl.<kind>``, then ``module:Name``.

    Raises
    ------
    ConfigError
        If the name is unknown or its target cannot be imported.
    """
    name = known_name(kind, name)
    if (own := _own_entry(kind, name)) is not None:
        return _imported(own.target)
    points = _entry_points(kind)
    target = points[name].value if name in points else name
    try:
        return _imported(target)
    except MabRflError:
        raise
    except Exception as error:  # the user's module may raise anything while it is imported
        raise ConfigError(_import_failure(kind, name, target, error)) from error


def describe(kind: Kind) -> list[tuple[str, str]]:
    """Return every name of a kind with one line on it: the package's own, then entry points."""
    lines = [(name, (own.line or _own_line(own)) + _needs_text(own)) for name, own in BUILT_IN[kind].items()]
    for name, point in sorted(_entry_points(kind).items()):
        if name not in BUILT_IN[kind]:
            lines.append((name, f"{_plugin_line(kind, name)} [{point.value}]"))
    return lines


def _is_target(kind: Kind, name: str) -> bool:
    return kind != "presets" and _own_entry(kind, name) is None and _TARGET.fullmatch(name) is not None


def _own_entry(kind: Kind, name: str) -> Entry | None:
    """Return the package's own entry of a name; ``hf:NAME`` is a data set of another library, not of a module hf."""
    library, _, theirs = name.partition(":")
    if kind == "datasets" and theirs and library in ADAPTERS:
        return Entry(target=ADAPTERS[library], fixed={"name": theirs}, label=theirs)
    return BUILT_IN[kind].get(name)


def _entry_points(kind: Kind) -> Mapping[str, importlib.metadata.EntryPoint]:
    return {} if kind == "presets" else _points_on(kind, tuple(sys.path))


@lru_cache(maxsize=32)
def _points_on(kind: Kind, _path: tuple[str, ...]) -> Mapping[str, importlib.metadata.EntryPoint]:
    """Return the entry points of all packages on the path: reading them takes long, and is done once for a path."""
    return {point.name: point for point in importlib.metadata.entry_points(group=f"mabrfl.{kind}")}


def _read_entry(kind: Kind, name: str) -> Entry:
    """Return what a plug-in says about itself."""
    target, what = resolve_name(kind, name), f"{SINGULAR[kind]} '{name}'"

    def read(attribute: str, usual: Any, rule: str) -> Any:
        value = getattr(target, attribute, usual)
        right_type = isinstance(value, tuple | list) if isinstance(usual, tuple) else type(value) is type(usual)
        if not right_type:
            raise ConfigError(f"{what}: its attribute {attribute} must be {rule}; got {value!r:.80}")
        return value

    colour = read("colour", "", "text such as '#0072B2'")
    if colour and not _COLOUR.fullmatch(colour):
        raise ConfigError(f"{what}: its attribute colour must be of the form '#rrggbb'; got {colour!r:.80}")
    needs = tuple(read("needs", (), "a tuple of words"))
    for word in needs:
        if word not in NEEDS:
            raise ConfigError(f"{what}: its attribute needs has an unknown word '{word}'{suggest(str(word), NEEDS)}")
    revision = read("revision", 1, "a whole number")
    if revision < 1:
        raise ConfigError(f"{what}: its attribute revision must be at least 1; got {revision}")
    return Entry(
        target=name,
        label=read("label", name.rpartition(":")[2], "text"),
        colour=colour,
        # Of a selector that does not say so nobody can know it: better one figure too many than one too few.
        learns=read("learns", kind == "selectors", "true or false"),
        needs=needs,
        revision=revision,
        stacked=kind == "models" and read("stacked", False, "true or false"),
        defaults=_read_defaults(what, getattr(target, "defaults", {})) if kind == "datasets" else DatasetDefaults(),
    )


def _read_defaults(what: str, defaults: Any) -> DatasetDefaults:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 (a server that lists names does not need it)

    if not isinstance(defaults, Mapping):
        raise ConfigError(f"{what}: its attribute defaults must be a mapping; got {defaults!r:.80}")
    rules = get_type_hints(DatasetDefaults)
    for key, value in defaults.items():
        if key not in rules:
            raise ConfigError(f"{what}: its attribute defaults has an unknown key '{key}'{suggest(str(key), rules)}")
        try:
            TypeAdapter(rules[key]).validate_python(value, strict=True)
        except ValidationError as error:
            rule = error.errors()[0]["msg"].replace("Input should be", "must be")
            raise ConfigError(f"{what}: its default {key} {rule}; got {value!r:.80}") from error
    return DatasetDefaults(**defaults)


def _imported(target: str) -> Any:
    """Return ``module:Name`` or ``module:TABLE[key]``."""
    module_name, _, path = target.partition(":")
    path, bracket, key = path.partition("[")
    value: Any = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(value, part):
            public = [name for name in dir(value) if not name.startswith("_")]
            raise ConfigError(f"module '{module_name}' has no '{path}'{suggest(path, public)}")
        value = getattr(value, part)
    return value[key.rstrip("]")] if bracket else value


def _import_failure(kind: Kind, name: str, target: str, error: Exception) -> str:
    module = target.partition(":")[0]
    missing = isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0])
    cause = (
        "there is no such module in the current folder or among the installed packages"
        if missing
        else f"{type(error).__name__}: {' '.join(str(error).split())}"
    )
    return f"{SINGULAR[kind]} '{name}': cannot import '{module}': {cause}"


def _plugin_line(kind: Kind, name: str) -> str:
    try:
        return first_line(resolve_name(kind, name).__doc__) + _needs_text(entry(kind, name))
    except ConfigError as error:
        return f"cannot be used: {error}"


def _needs_text(own: Entry) -> str:
    return f" [needs {', '.join(NEEDS[word] for word in own.needs)}]" if own.needs else ""


def _own_line(own: Entry) -> str:
    """Return the first line of a docstring of this package: read from the source, which is not imported."""
    module, _, name = own.target.partition(":")
    path = _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return first_line(_docstrings(path).get(name))


@cache
def _docstrings(path: Path) -> dict[str, str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }


def first_line(docstring: str | None) -> str:
    """Return a docstring's first sentence or line; of rst markup only the text."""
    return without_markup(" ".join((docstring or "").strip().partition("\n\n")[0].split()))


def without_markup(text: str) -> str:
    """Return text in rst without its markup.

    Examples
    --------
    >>> without_markup("See :class:`~mabrfl.Defense` and ``select``.")
    'See mabrfl.Defense and select.'
    """
    return re.sub(r":\w+:`~?([^`]*)`|`+([^`]*)`+", lambda match: match[1] or match[2], text)
