"""Docstrings for the site: reStructuredText becomes Markdown, and formulas become MathML, which browsers show alone."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import griffe
from latex2mathml.converter import convert

_DIRECTIVE = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*| *))*)", re.MULTILINE)
_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod):`(~?)([^`<]*)`")
_MATH = re.compile(r":math:`([^`]*)`")
_TABLE = re.compile(r"^( *)=+ =+(?: =+)*\n(?:.*\n)*?\1=+ =+(?: =+)*$", re.MULTILINE)


def as_markdown(text: str) -> str:
    """Return a docstring's text as Markdown; sections of numpydoc stay as they are.

    Examples
    --------
    >>> as_markdown("See :class:`~mabrfl.Defense` and ``select``.")
    'See `Defense` and ``select``.'
    """
    text = _DIRECTIVE.sub(_display, text)
    text = _TABLE.sub(lambda found: f"{found[1]}```text\n{_plain(found[0])}\n{found[1]}```", text)
    text = _MATH.sub(lambda found: _formula(found[1]), text)
    return _ROLE.sub(lambda found: f"`{found[2].rpartition('.')[2] if found[1] else found[2]}`", text)


def _display(found: re.Match[str]) -> str:
    return f"\n{found[1]}{_formula(found[2], display='block')}\n\n"


def _formula(latex: str, display: str = "inline") -> str:
    return convert(" ".join(textwrap.dedent(latex).split()), display=display)


def _plain(table: str) -> str:
    return _MATH.sub(lambda found: found[1], table).replace("``", "")


def sections(docstring: str) -> dict[str, str]:
    r"""Return the sections of a numpydoc docstring by their headings; the text before the first one has none.

    Examples
    --------
    >>> sections("Do it.\n\nParameters\n----------\na\n    A number.")
    {'': 'Do it.', 'Parameters': 'a\n    A number.'}
    """
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {"": parts[0].strip()} | {parts[k]: parts[k + 1].strip() for k in range(1, len(parts), 2)}


def described(section: str) -> list[tuple[list[str], str]]:
    r"""Return the entries of a section such as Parameters: names that share a text, and the text in Markdown.

    Examples
    --------
    >>> described("a, b\n    Two\n    numbers.")
    [(['a', 'b'], 'Two numbers.')]
    """
    found = re.findall(r"^(\S.*)\n((?:[ ]+.*\n?|\n)*)", section + "\n", flags=re.MULTILINE)
    return [
        ([name.strip() for name in names.partition(" : ")[0].split(",")], " ".join(as_markdown(text).split()))
        for names, text in found
    ]


def one_by_one(docstring: str) -> str:
    r"""Return a docstring in which names that share a text are described one by one, as mkdocstrings reads it.

    Examples
    --------
    >>> one_by_one("Parameters\n----------\na, b\n    Two numbers.")
    'Parameters\n----------\na\n    Two numbers.\nb\n    Two numbers.'
    """
    shared = re.compile(r"^(\w+(?:, \w+)+)\n((?: {4,}\S.*\n?)+)", re.MULTILINE)
    return shared.sub(
        lambda found: "\n".join(f"{name}\n{found[2].rstrip()}" for name in found[1].split(", ")) + "\n",
        docstring + "\n",
    ).rstrip()


class PlainDocstrings(griffe.Extension):
    """Converts every docstring before mkdocstrings reads it."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = one_by_one(as_markdown(obj.docstring.value))
