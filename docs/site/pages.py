"""The pages of the site: which files of the repository become pages, and where their links lead."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOW_TO, RESULTS, REFERENCE = "How to", "Results", "Reference"

_BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]\(([^()\s]+)\)")
_LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", ".yml": "yaml", ".sh": "bash", ".json": "json"}


def extra_pages() -> list[Path]:
    """Return what MkDocs does not find in ``docs``: pages elsewhere, and files of results."""
    return [ROOT / name for name in _BESIDE] + sorted(ROOT.glob("results/*/*"))


def site_path(path: Path) -> str:
    """Return where a file of the repository is in the site.

    Examples
    --------
    >>> [site_path(ROOT / name) for name in ("README.md", "docs/data.md", "results/training/README.md", "src/a.py")]
    ['index.md', 'data.md', 'results/training/index.md', 'source/src/a.py.md']
    """
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    if name in _BESIDE or name.startswith("results/"):
        return name.replace("README.md", "index.md")
    return f"source/{name}.md"


def pages() -> list[Path]:
    """Return all files of the repository that become pages."""
    return sorted(ROOT.glob("docs/*.md")) + [path for path in extra_pages() if path.suffix == ".md"]


def linked_sources() -> list[Path]:
    """Return the other text files that a page links: each gets a page that shows it."""
    linked = {target for page in pages() for target in _targets(page) if not _in_site(target) and _is_text(target)}
    return sorted(linked)


def source_page(path: Path) -> str:
    """Return a page that shows a file; the search leaves it out."""
    language = _LANGUAGES.get(path.suffix, "text")
    name = path.relative_to(ROOT).as_posix()
    return (
        f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n````{language}\n{path.read_text(encoding='utf-8')}\n````\n"
    )


def relink(markdown: str, place: str) -> str:
    """Return a page of the repository with its links as they are in the site.

    A link to a folder or to a file that cannot be shown becomes plain text.

    Parameters
    ----------
    markdown
        The page.
    place
        Where it is in the site.
    """
    own = {site_path(path): path for path in pages()}.get(place)
    if own is None:
        return markdown

    def lead(found: re.Match[str]) -> str:
        name, hash_sign, rest = found[2].partition("#")
        target = (own.parent / name).resolve()
        if not name or "://" in found[2] or not target.exists():
            return found[0]
        if not (_in_site(target) or _is_text(target)):
            return found[1]
        there = os.path.relpath(site_path(target), os.path.dirname(place))
        return f"[{found[1]}]({there}{hash_sign}{rest})"

    return _outside_code(markdown, lambda line: _LINK.sub(lead, line))


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading as GitHub makes it, so that the links of the repository work in both.

    Examples
    --------
    >>> anchor("Pre-aggregators: `--before`")
    'pre-aggregators---before'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def with_all_pages(nav: list[Any], reference: list[tuple[str, str, str]]) -> list[Any]:
    """Return the nav with the pages that it does not name: of ``docs`` under "How to", of results, and the reference.

    Parameters
    ----------
    nav
        Of ``mkdocs.yml``.
    reference
        Of each generated page its title, its path and its text.
    """
    named = set(_leaves(nav))
    rest = [site_path(path) for path in pages() if site_path(path) not in named]
    added: dict[str, list[Any]] = {
        HOW_TO: [page for page in rest if "/" not in page and page not in map(site_path, extra_pages())],
        RESULTS: [page for page in rest if page.startswith("results/") and page.endswith("/index.md")],
        REFERENCE: [{title: path} for title, path, _ in reference]
        + [{Path(page).stem.capitalize(): page} for page in ("CHANGELOG.md", "CONTRIBUTING.md")],
    }
    return [
        {title: [*items, *added.get(title, [])]} if isinstance(items, list) else {title: items}
        for section in nav
        for title, items in section.items()
    ]


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(part)


def _targets(page: Path) -> Iterator[Path]:
    found: list[str] = []

    def note(text: str) -> str:
        found.extend(each[2] for each in _LINK.finditer(text))
        return text

    _outside_code(page.read_text(encoding="utf-8"), note)
    for link in found:
        target = (page.parent / link.partition("#")[0]).resolve()
        if "://" not in link and target.is_file() and target != page:
            yield target


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Change the paragraphs of a page; fenced blocks stay as they are."""
    parts = re.split(r"(^ *(`{3,}).*?^ *\2 *$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(change(parts[k]) + (parts[k + 1] if k + 1 < len(parts) else "") for k in range(0, len(parts), 3))


def _in_site(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return path.is_file() and (name in _BESIDE or (name.startswith(("docs/", "results/")) and not name.endswith(".gz")))


def _is_text(path: Path) -> bool:
    return path.is_file() and path.is_relative_to(ROOT) and b"\0" not in path.read_bytes()[:4096]
