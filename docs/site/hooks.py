"""Hooks of MkDocs: pages from outside ``docs``, the generated reference, and links between all of them."""

from __future__ import annotations

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pages import anchor, extra_pages, linked_sources, relink, site_path, source_page, with_all_pages
from site_reference import reference_pages


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors as GitHub does, and add to the nav what it does not name."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    config.nav = with_all_pages(config.nav or [], reference_pages())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository outside ``docs``, the pictures beside them, and the generated reference."""
    made: dict[str, str | bytes] = {site_path(path): path.read_bytes() for path in extra_pages()}
    made |= {path: text for _, path, text in reference_pages()}
    made |= {site_path(path): source_page(path) for path in linked_sources()}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead the links of a page, which are those of the repository, to pages of the site.

    The search shows pages that somebody wrote for a reader first, then the reference, then tables of results.
    """
    folder = page.file.src_uri.partition("/")[0]
    page.meta.setdefault("search", {})["boost"] = {"reference": 1, "results": 0.2}.get(folder, 4)
    return relink(markdown, page.file.src_uri)
