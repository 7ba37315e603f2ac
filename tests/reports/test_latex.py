"""The tables in LaTeX are compiled, where TeX is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mabrfl.reports.ablation import ABLATION_FORMATS, ablation_table
from mabrfl.reports.detection import detection_table
from mabrfl.reports.detection_formats import detection_latex
from mabrfl.reports.table_formats import latex
from mabrfl.reports.tables import tabulate
from result_folders import LAPTOP, make_cell

pytestmark = pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="NO TEX: tables in LaTeX are not compiled (apt install texlive-latex-base texlive-latex-recommended)",
)

RESULTS = Path(__file__).parent.parent.parent / "results"
ODD = "".join(map(chr, range(32, 127))) + "—±−τ“”"


def compiled(folder: Path, text: str) -> tuple[int, str]:
    """Compile tables as their comments say; return how many pages there are, and the log."""
    packages = dict.fromkeys(re.findall(r"\\usepackage\{(\w+)\}", text))
    head = "".join(rf"\usepackage{{{name}}}" for name in packages)
    # As the comment in such a table says.
    columns = r"\onecolumn" if r"\begin{longtable}" in text else ""
    document = rf"\documentclass[10pt,twocolumn]{{article}}{head}\begin{{document}}{columns} {text}\end{{document}}"
    (folder / "t.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, timeout=120)
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-3000:]
    pages = re.search(r"Output written on t\.pdf \((\d+) page", log)
    assert pages is not None, log[-3000:]
    return int(pages[1]), log


def test_tables_of_every_kind_with_every_character_compile(tmp_path: Path) -> None:
    lie = {"attack": "lie", "attackers": 0.3}
    plain = [
        make_cell(90.0, defense="krum", axes={"defense": ODD}, **LAPTOP, **lie),
        make_cell(95.0, defense="mab-rfl", **LAPTOP, **lie),
        make_cell(94.0, defense="mab-rfl", seed=1, **LAPTOP, **lie),
        make_cell(96.0, defense="fedavg", **LAPTOP, **lie),
        make_cell(status="missing", defense="median", axes={"attack": ODD}, **LAPTOP, **lie),
    ]
    parts = [make_cell(90.0, defense="mab-rfl", axes={"ablation": "whole"}, **lie)]
    parts += [make_cell(80.0, defense="mab-rfl", axes={"ablation": ODD}, defense_options={"c_max": 0.5}, **lie)]
    text = latex(tabulate(plain), ranks=True) + detection_latex(detection_table(plain))
    text += ABLATION_FORMATS["latex"](ablation_table(parts))
    pages, _ = compiled(tmp_path, text)
    assert pages >= 1


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(RESULTS.glob("*/*.tex")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_committed_tables_compile_and_fit_the_page(file: Path, tmp_path: Path) -> None:
    pages, log = compiled(tmp_path, file.read_text(encoding="utf-8"))
    assert pages >= 1
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", log)]
    assert max(wide, default=0.0) < 10.0, "points, of 500"
