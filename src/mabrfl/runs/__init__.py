"""One run, from its settings to its finished folder.

Start with :func:`run`: it runs a configuration into a folder, or continues the run there. ``mabrfl run``, the cells
of a sweep and Python programs use it. An :class:`Observer` watches a run. :mod:`mabrfl.runs.finished` says which run is
in a folder, and whether it is finished.
"""

from mabrfl.runs.finished import finished_run, finished_summary
from mabrfl.runs.observers import Observer, RunResult, RunStart
from mabrfl.runs.session import run, weights_sha256

__all__ = ["Observer", "RunResult", "RunStart", "finished_run", "finished_summary", "run", "weights_sha256"]
