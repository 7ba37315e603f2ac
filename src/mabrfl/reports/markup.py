"""HTML that cannot be broken out of: text is escaped unless it is markup made here."""

from __future__ import annotations

import html
from collections.abc import Iterable

_EMPTY = frozenset({"img", "meta", "br"})


class Markup(str):
    """Text that is HTML already; made by :func:`element` alone."""

    __slots__ = ()


Content = str | Iterable[str]


def element(name: str, /, *content: Content, **attributes: str | bool | None) -> Markup:
    """Return an element; plain text in it is escaped, and so are its attributes.

    Parameters
    ----------
    name
        Of the element.
    *content
        Text, markup, or lists of either.
    **attributes
        A trailing underscore is dropped (``class_``), others become hyphens; None and False leave an attribute out.

    Examples
    --------
    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    said = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{join(content)}</{name}>")


def join(content: Iterable[Content], between: str = "") -> Markup:
    """Return pieces of text and markup as one piece of markup."""
    return Markup(escape(between).join(escape(part) if isinstance(part, str) else join(part) for part in content))


def escape(text: str) -> Markup:
    """Return text as markup; markup stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(text, quote=True))


def trusted(text: str) -> Markup:
    """Return text of this package's own, such as a style sheet, unescaped."""
    return Markup(text)


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value), quote=True)}"'
