"""Fingerprints of a user's own code: the source of ``module:Name``, and of what it imports beside it.

A fingerprint tells whether a finished run was made with the code of today. The package's own names have none: their
revisions are part of a run's key. Nothing is imported or run here: modules are located, and their source is parsed.

*Beside* means the same top-level package, or the same folder, unless that is a folder of installed packages. Comments,
docstrings and formatting do not count, so that a better explanation does not cost hours of computing.
Modules that are imported by name at run time (``importlib.import_module``) and data files are not seen.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec
from itertools import accumulate
from pathlib import Path
from typing import Any

from mabrfl.catalog.kinds import KINDS, Kind
from mabrfl.catalog.names import own_target

_PACKAGE = "mabrfl"
_INSTALLED = frozenset(
    Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_INSTALLED_NAMES = ("site-packages", "dist-packages")
_WITHOUT_MEANING = ("kind", "type_comment", "ctx")
"""Fields of syntax trees that say how something is written, or follow from where it stands."""


@dataclass(frozen=True)
class CodeCheck:
    """Whether a run was made with the code of today.

    Attributes
    ----------
    changed
        The user's own names in its settings whose code is another one now.
    not_found
        Those whose source cannot be found now.
    not_recorded
        Those whose code the run did not record.
    """

    changed: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()
    not_recorded: tuple[str, ...] = ()


def code_of(settings: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the fingerprint of the code behind each name of a run that is the user's own.

    Parameters
    ----------
    settings
        The run's complete configuration, as plain tables.

    Returns
    -------
    dict
        By name; None if its source cannot be found. Names of plug-ins count as the user's own.

    Examples
    --------
    >>> code_of({"defense": "krum", "attack": "nowhere_to_be_found:Attack"})
    {'nowhere_to_be_found:Attack': None}
    """
    return {name: fingerprint(targets) for name, targets in _own_targets(settings).items()}


def check_code(settings: Mapping[str, Any], recorded: Any) -> CodeCheck:
    """Compare the code that a run has recorded in its manifest, if it did, with that of today."""
    before = recorded if isinstance(recorded, dict) else {}
    now = code_of(settings)
    comparable = [name for name in now if now[name] and before.get(name)]
    return CodeCheck(
        changed=tuple(name for name in comparable if now[name] != before[name]),
        not_found=tuple(name for name in now if not now[name]),
        not_recorded=tuple(name for name in now if now[name] and not before.get(name)),
    )


def fingerprint(targets: Iterable[str]) -> str | None:
    """Return the SHA-256 (hex) over the modules of each ``module:Name``, and over what these import beside them.

    It is taken over names and syntax trees. None if the source of one of these modules cannot be found.
    """
    digests: dict[str, str] = {}
    for target in targets:
        module = target.partition(":")[0]
        found = _digests(module) if module else {}
        if module not in found:
            return None
        digests |= {**found, target: ""}
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


def own_names(settings: Mapping[str, Any]) -> Iterator[tuple[Kind, str, str]]:
    """Yield the user's own names in a configuration: kind, name, and ``module:Name`` (empty if nobody knows it)."""
    for kind in (*KINDS, "preaggregators"):
        key = kind.removesuffix("s")
        options = settings.get(f"{key}_options")
        inner = options.get("inner") if isinstance(options, Mapping) else None
        names = str(settings.get("before") or "").split("+") if kind == "preaggregators" else [settings.get(key), inner]
        for name in filter(None, names):
            target = own_target(kind, name) if isinstance(name, str) else None
            if isinstance(name, str) and target is not None:
                yield kind, name, target


def _own_targets(settings: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the targets of each of the user's own names, which may be that of two plug-ins of different kinds."""
    targets: dict[str, set[str]] = {}
    for _, name, target in own_names(settings):
        targets.setdefault(name, set()).add(target)
    return targets


def _digests(module: str) -> dict[str, str]:
    """Return a digest of each module that is part of a module's code: itself, its packages, and imports beside it."""
    top = module.partition(".")[0]
    folder = _folder_of(_located(top))
    digests: dict[str, str] = {}
    waiting, seen = [module], set()
    while waiting:
        for name in accumulate(waiting.pop().split("."), "{}.{}".format):
            if name in seen:
                continue
            seen.add(name)
            spec = _located(name) if _is_beside(name, top, folder) else None
            if spec is None:
                break  # somebody else's, or not a module but a name in one
            source = _source(spec)
            if source is not None:
                digests[name], imports = _parsed(source)
                package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
                waiting += _absolute(imports, package)
    return digests


def _is_beside(name: str, top: str, folder: Path | None) -> bool:
    first = name.partition(".")[0]
    if first in (top, _PACKAGE):
        return first == top
    return folder is not None and not _is_installed(folder) and _folder_of(_located(first)) == folder


def _is_installed(folder: Path) -> bool:
    return folder.name in _INSTALLED_NAMES or folder in _INSTALLED


def _located(module: str) -> ModuleSpec | None:
    """Return where a module would be imported from, without importing its packages, as ``find_spec`` would."""
    spec, places = None, None
    for number, name in enumerate(accumulate(module.split("."), "{}.{}".format)):
        if number and places is None:
            return None
        finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((found for finder in finders if (found := finder.find_spec(name, places)) is not None), None)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return spec


def _folder_of(spec: ModuleSpec | None) -> Path | None:
    """Return the folder in which a top-level module or package was found."""
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin).resolve().parent if spec.has_location and spec.origin else None


def _source(spec: ModuleSpec) -> bytes | None:
    """Return the file of a module; None of one without a file, as packages without ``__init__.py`` are."""
    if not spec.has_location or spec.origin is None:
        return None
    try:
        return Path(spec.origin).read_bytes()
    except OSError:
        return None


@lru_cache(maxsize=1024)
def _parsed(source: bytes) -> tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return the digest of a module's source, and what it imports: modules, each with the names taken from it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are the user's, and said when the module is imported
            tree = ast.parse(source)
        text = json.dumps(_outline(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(source).hexdigest(), ()  # not Python, or nothing that could be imported
    return hashlib.sha256(text.encode()).hexdigest(), tuple(_imports(tree))


def _outline(node: Any) -> Any:
    """Return a syntax tree as plain lists, without docstrings, and the same in all versions of Python.

    ``ast.dump`` and ``ast.unparse`` are not: fields that are new, and empty in older code, would change them.
    """
    if isinstance(node, list):
        return [_outline(entry) for entry in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if name not in _WITHOUT_MEANING}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    present = {name: value for name, value in fields.items() if value is not None and value != []}
    return [type(node).__name__, *([name, _outline(present[name])] for name in sorted(present))]


def _imports(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names if alias.name != "*")
            yield "." * node.level + (node.module or ""), names


def _absolute(imports: Iterable[tuple[str, tuple[str, ...]]], package: str) -> Iterator[str]:
    """Yield everything imported that may be a module, by its absolute name."""
    for module, names in imports:
        try:
            absolute = importlib.util.resolve_name(module, package)
        except ImportError:
            continue  # beyond the top-level package: it cannot be imported
        yield absolute
        yield from (f"{absolute}.{name}" for name in names)
