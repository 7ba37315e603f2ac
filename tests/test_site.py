"""The site: it is built without a warning, its links lead somewhere, it needs no network, its reference is complete."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import mabrfl
from browser import CHROMIUM, browser
from mabrfl import catalog
from mabrfl.config import RunConfig
from mabrfl.recording.evaluation import summarize
from mabrfl.recording.manifest import manifest
from mabrfl.recording.meanings import EVENTS, MANIFEST, SUMMARY

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parent.parent
TOOLS = ROOT / "docs" / "site"


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder and writes no log."""

    def log_message(self, *words):
        pass


class Html(HTMLParser):
    """The links of a page, what the browser loads with it, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif found.get("src") or (tag == "link" and found.get("href")):
            self.loaded.append(found.get("src") or found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[Path, Html]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "mkdocs", "build", "--quiet", "--strict"]
    settings = {"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    built = subprocess.run(
        [*command, "--site-dir", str(folder)], cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return {path: Html(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}


def test_every_link_and_anchor_of_the_site_leads_somewhere(site):
    dead = []
    for path, page in site.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = site[target].anchors if target in site else set()
            if (
                path.name != "404.html"
                and not parts.scheme
                and not (target.is_file() and (parts.fragment in anchors or not parts.fragment))
            ):
                dead.append((path.name, link))
    assert dead == []


def test_the_site_loads_nothing_from_elsewhere(site):
    folder = min(site, key=lambda path: len(path.parts)).parent
    assert [link for page in site.values() for link in page.loaded if urlsplit(link).netloc] == []
    sheets = [path.read_text(encoding="utf-8") for path in folder.rglob("*.css")]
    assert [found for text in sheets for found in re.findall(r"(?:@import|url\()\s*[\"']?https?:[^)\"']+", text)] == []


def test_every_document_is_a_page_in_the_navigation(site):
    home = next(
        page for path, page in site.items() if path.name == "index.html" and path.parent.name.startswith("site")
    )
    assert {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")} - set(home.links) == set()


def test_the_search_leaves_out_pages_that_only_show_a_file(site):
    folder = min(site, key=lambda path: len(path.parts)).parent
    places = [entry["location"] for entry in json.loads((folder / "search" / "search_index.json").read_text())["docs"]]
    assert any(place.startswith("reference/settings.html") for place in places)
    assert [place for place in places if place.startswith("source/")] == []


def test_no_page_is_in_the_navigation_twice():
    named = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(named) > 10
    assert [name for name in named if named.count(name) > 1] == []


def test_a_table_to_sort_is_beside_the_page_of_its_name(site):
    (leaderboard,) = [page for path, page in site.items() if path.name == "leaderboard.html"]
    (sortable,) = [page for path, page in site.items() if path.name == "leaderboard-runs.html"]
    assert "leaderboard-runs.html" in leaderboard.links
    assert "index.html" in " ".join(leaderboard.links)
    assert "index.html" not in " ".join(sortable.links)


QUESTIONS = {
    "activate": "/index.html",
    "lie": "/reference/attacks.html",
    "dnc": "/reference/defenses.html",
    "nearest": "/explain.html",
    "share": "/explain.html",
    "credit": "/explain.html",
    "separation_needed": "/explain.html",
    "cohort matrix": "/extend.html",
    "pandas": "/data.html",
    "save model": "/data.html",
    "allow_majority": "/reference/settings.html",
    "state_dict": "/data.html",
}
"""What new users asked and did not find within two minutes, and the page that says it, among the first five found."""


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here: the search of the site is NOT tested")
def test_the_search_finds_what_a_reader_types(site, tmp_path):
    folder = min(site, key=lambda path: len(path.parts)).parent
    handler = functools.partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browser(tmp_path / "profile") as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for question, answer in QUESTIONS.items():
            page.show(f"http://127.0.0.1:{server.server_port}/index.html?q={question.replace(' ', '+')}", 1280)
            links = "[...document.querySelectorAll('.md-search-result__item a')].map(a => a.pathname)"
            page.wait(f"[...new Set({links})].slice(0, 5).includes('{answer}')")
        page.show(f"http://127.0.0.1:{server.server_port}/tutorial.html", 1280)
        page.wait("document.querySelector('code:has(.gp)')")
        copied = page.value(
            "(c => (c.setAttribute('data-md-copying', ''), c.innerText))(document.querySelector('code:has(.gp)'))"
        )
        assert copied.split("\n")[:2] == ["make demo", ". .venv/bin/activate"]
        assert page.complaints == []
        server.shutdown()


@pytest.mark.parametrize("name", ["docstrings", "markup", "pages"])
def test_the_examples_in_the_tools_are_true(name, monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def generated(monkeypatch) -> dict[str, str]:
    monkeypatch.syspath_prepend(TOOLS)
    return {path: text for _, path, text in importlib.import_module("site_reference").reference_pages()}


@pytest.mark.parametrize("kind", ["defenses", "presets", "preaggregators", "selectors", "attacks", "observers"])
def test_the_reference_has_every_name_with_every_option_and_its_meaning(kind, monkeypatch):
    page = generated(monkeypatch)[f"reference/{kind}.md"]
    parts = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))
    assert list(parts) == list(catalog.BUILT_IN[kind])
    for name, text in parts.items():
        assert len(text.split()) > 1
        for option in catalog.list_options(kind, name):
            row = re.search(rf"^\| `{option.name}` \| (.+?) \| (.*?) \| (.*) \|$", text, flags=re.MULTILINE)
            assert row is not None, f"{kind} {name}: {option.name}"
            assert row[1] == (f"`{option.default}`" if option.default else "needed")
            assert row[3], f"{kind} {name}: the docstring does not say what {option.name} means"


def test_the_reference_has_every_setting(monkeypatch):
    page = generated(monkeypatch)["reference/settings.md"]
    told = set(re.findall(r"^\| `([\w.]+)` \|", page, flags=re.MULTILINE))
    own = RunConfig()
    nested = {f"{part}.{name}" for part in ("training", "partition") for name in type(getattr(own, part)).model_fields}
    assert told == {*RunConfig.model_fields, *nested}


def test_every_field_of_the_summary_and_the_manifest_has_a_meaning():
    assert list(summarize([], RunConfig(dataset="digits"), 0.0)) == list(SUMMARY)
    written = manifest(seed=0, config_hash="", data_fingerprint=None, arguments=[], code={"a:B": None})
    assert [*written, "resumed"] == list(MANIFEST)  # a resumed run adds it


def events_in(tree: ast.AST) -> Iterator[str]:
    """The first words of the texts that are given as events: passed on, assigned or appended."""
    for node in ast.walk(tree):
        values: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg == "events":
            values = [node.value]
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values = [node.value] if "events" in " ".join(map(ast.unparse, targets)) else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("events.append"):
            values = node.args
        preconditions = ("quorum(", "self.expected(")  # RULE-precondition
        values = [value for value in values if not ast.unparse(value).startswith(preconditions)]
        for text in (each for value in values for each in ast.walk(value) if isinstance(each, ast.Constant)):
            if isinstance(text.value, str) and (word := re.match(r"([a-z]+(?:-[a-z]+)+)(?::|$)", text.value)):
                yield word[1]


def test_every_event_has_a_meaning():
    sources = Path(mabrfl.__file__).parent.rglob("*.py")
    found = {word for path in sources for word in events_in(ast.parse(path.read_text(encoding="utf-8")))}
    assert len(found) > 10
    assert found - set(EVENTS) == set()
