"""Options against signatures: unknown, missing and mistyped ones are errors, never silently dropped."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

from mabrfl.catalog.kinds import SINGULAR, Kind
from mabrfl.catalog.names import entry, known_name, resolve_name
from mabrfl.errors import ConfigError, suggest

CONTEXT = frozenset({"num_malicious", "num_clients", "seed"})
"""Arguments that come from the run; a constructor that has one of these gets it."""

_INSTEAD = {"num_malicious": "assumed_malicious", "num_clients": "clients", "seed": "seed"}


def complete_options(kind: Kind, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return these options and the defaults of all others, as far as they are plain values.

    Raises
    ------
    ConfigError
        If an option does not exist, is missing, or has the wrong type.
    """
    name = known_name(kind, name)
    own = entry(kind, name)
    if not own.target:
        check_options(kind, name, {}, options)
        return {}
    target = resolve_name(kind, name)
    parameters = parameters_of(target)
    options, inner = _split(kind, name, target, parameters, options)
    check_options(kind, name, parameters, options, hints_of(target))
    defaults = {
        option: list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
        for option, parameter in parameters.items()
        if option not in CONTEXT and isinstance(parameter.default, bool | int | float | str | tuple)
    }
    nested = {} if inner is None else {"inner": inner.name, **complete_options(kind, inner.name, inner.options)}
    return {**nested, **defaults, **own.fixed, **options}


def before_names(before: str | Sequence[str]) -> tuple[str, ...]:
    """Return the pre-aggregators of a run, in order: of a list, or of a text in which ``+`` stands between them.

    Examples
    --------
    >>> before_names("bucketing+nnm"), before_names("")
    (('bucketing', 'nnm'), ())
    """
    names = before.split("+") if isinstance(before, str) else before
    return tuple(known_name("preaggregators", name.strip()) for name in names if before)


def complete_before(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return these options of pre-aggregators and the defaults of all others.

    Raises
    ------
    ConfigError
        If no pre-aggregator has such an option, or one is missing or has the wrong type.
    """
    complete: dict[str, Any] = {}
    for name, own in share_options(names, options):
        complete = {**complete_options("preaggregators", name, own), **complete}
    return complete


def share_options(names: Sequence[str], options: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return each pre-aggregator with those of the options that it has; refuse an option that none has."""
    known = {name: parameters_of(resolve_name("preaggregators", name)) for name in names}
    for option in options:
        if not any(option in parameters for parameters in known.values()):
            hint = suggest(option, sorted({each for parameters in known.values() for each in parameters} - CONTEXT))
            raise ConfigError(
                f"before_options.{option}: none of {'+'.join(names) or 'no pre-aggregators'} has it{hint}"
            )
    return [(name, {key: value for key, value in options.items() if key in known[name]}) for name in names]


def make(kind: Kind, name: str, options: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Return the object that a name stands for: a class instantiated, a function with its options bound.

    Parameters
    ----------
    kind, name
        What the catalogue is asked for.
    options
        From the configuration; checked against the signature.
    context
        Facts of the run (see :data:`CONTEXT`), passed on where the signature asks for them.
    """
    name = known_name(kind, name)
    target = resolve_name(kind, name)
    parameters = parameters_of(target)
    options, inner = _split(kind, name, target, parameters, options)
    check_options(kind, name, parameters, options, hints_of(target))
    arguments = {key: value for key, value in context.items() if key in parameters}
    arguments |= entry(kind, name).fixed
    arguments |= {} if inner is None else {"inner": make(kind, inner.name, inner.options, context)}
    arguments |= options
    if not isinstance(target, type):
        return _bound(target, arguments)
    try:
        return target(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{SINGULAR[kind]} '{name}': {error}") from error


@dataclass(frozen=True)
class Inner:
    """What another component is wrapped around, by its name and its own options."""

    name: str
    options: Mapping[str, Any]


def _split(
    kind: Kind, name: str, target: Any, parameters: Mapping[str, inspect.Parameter], options: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Inner | None]:
    """Tell a wrapper's own options from those of what it is wrapped around.

    A class wraps another component if it has ``default_inner``: the name of what its argument ``inner`` is
    if the options do not say. All other options that it does not have itself are meant for that one.
    """
    default = getattr(target, "default_inner", None)
    if default is None:
        return options, None
    place = f"{SINGULAR[kind]}_options.inner"
    inner = options.get("inner", default)
    try:
        target_of_inner = isinstance(inner, str) and entry(kind, inner).target
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    if not target_of_inner:
        raise ConfigError(f"{place} must be the name of another {SINGULAR[kind]}; got {inner!r}")
    inner = known_name(kind, inner)
    own = {key: value for key, value in options.items() if key in parameters and key != "inner"}
    rest = {key: value for key, value in options.items() if key not in parameters}
    theirs = parameters_of(resolve_name(kind, inner))
    for option in rest:
        if option not in theirs:
            what = f"neither {SINGULAR[kind]} '{name}' nor its inner {SINGULAR[kind]} '{inner}' has such an option"
            hint = suggest(option, sorted({*parameters, *theirs} - CONTEXT))
            raise ConfigError(f"{SINGULAR[kind]}_options.{option}: {what}{hint}")
    return own, Inner(inner, rest)


def parameters_of(target: Any) -> dict[str, inspect.Parameter]:
    """Return the options of a class (its constructor's) or of a function (all but the first parameter)."""
    if not callable(target) or not (isinstance(target, type) or inspect.isroutine(target)):
        return {}
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return {}
    if not isinstance(target, type):
        parameters = parameters[1:]
    return {
        parameter.name: parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def hints_of(target: Any) -> Mapping[str, Any]:
    """Return the annotations of the options, as far as they can be evaluated."""
    return _hints(target) if isinstance(target, Hashable) else {}


@functools.lru_cache(maxsize=256)
def _hints(target: Any) -> Mapping[str, Any]:
    # Evaluated once: planning a sweep asks for the same few hundreds of times.
    try:
        if isinstance(target, type):
            return {
                **typing.get_type_hints(target),
                **typing.get_type_hints(vars(target).get("__init__", object.__init__)),
            }
        return typing.get_type_hints(target)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


def check_options(
    kind: Kind,
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    options: Mapping[str, Any],
    hints: Mapping[str, Any] | None = None,
) -> None:
    """Refuse options that do not exist, come from elsewhere, have the wrong type, or are missing."""
    what = f"{SINGULAR[kind]} '{name}'"
    section = "before_options" if kind == "preaggregators" else f"{SINGULAR[kind]}_options"
    known = [parameter for parameter in parameters if parameter not in CONTEXT]
    for option, value in options.items():
        if option in CONTEXT and option in parameters:
            raise ConfigError(f"{section}.{option}: the run gives it to {what}; set {_INSTEAD[option]} instead")
        if option not in parameters:
            hint = suggest(option, known) if known else "; it has none"
            raise ConfigError(f"{section}.{option}: {what} has no such option{hint}")
        _check_type(f"{section}.{option}", value, (hints or {}).get(option, Any))
    for option in known:
        if option not in options and parameters[option].default is inspect.Parameter.empty:
            raise ConfigError(f"{what} needs the option '{option}'; set {section}.{option}")


def _check_type(place: str, value: Any, hint: Any) -> None:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError):
        return
    candidates = [value, tuple(value)] if isinstance(value, list) else [value]
    problem = ""
    for candidate in candidates:
        try:
            adapter.validate_python(candidate)
        except ValidationError as error:
            problem = problem or error.errors()[0]["msg"]
        else:
            return
    raise ConfigError(f"{place} {problem.replace('Input should be', 'must be')}; got {value!r}")


def _bound(target: Any, arguments: Mapping[str, Any]) -> Any:
    if not arguments:
        return target

    def call(first: Any, /) -> Any:
        return target(first, **arguments)

    # An attack may carry its knowledge as attributes of the function.
    call.__dict__.update(getattr(target, "__dict__", {}))
    call.__name__, call.__doc__ = getattr(target, "__name__", "call"), getattr(target, "__doc__", None)
    return call
