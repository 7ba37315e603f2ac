"""The tutorial as a notebook, made from its page: ``python docs/site/notebook.py`` writes ``docs/tutorial.ipynb``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"

_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>.*?) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```\n", re.MULTILINE | re.DOTALL
)


def notebook_of(page: str) -> str:
    """Return the notebook of a page, without outputs.

    Files become ``%%writefile`` cells, commands of ``mabrfl`` become ``!mabrfl`` lines, Python stays as it is. What is
    typed before there is a notebook (the installation) stays text.
    """
    cells, end = [], 0
    for found in _BLOCK.finditer(page):
        code = _cell_code(found["note"] or "", found["language"], found["code"])
        if code is not None:
            cells += [_cell("markdown", page[end : found.start()]), _cell("code", code)]
            end = found.end()
    cells.append(_cell("markdown", page[end:]))
    kept = [cell for cell in cells if cell["source"]]
    named = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(kept)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": named, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cell_code(note: str, language: str, code: str) -> str | None:
    """Return the code of a block in a notebook; None if it is not run there."""
    if note.startswith("file:"):
        return f"%%writefile {note.removeprefix('file:').strip()}\n{code}"
    if language == "console":
        return "\n".join(f"!{line[2:]}" for line in code.splitlines()) if note == "run" else None
    return code if language == "python" else None


def _cell(kind: str, text: str) -> dict[str, Any]:
    lines = text.strip("\n").splitlines(keepends=True)
    outputs: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, **outputs, "source": lines}


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
