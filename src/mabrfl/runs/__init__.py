"""One run, from its settings to its finished folder.

:func:`run` runs a configuration into a folder, or goes on with it; ``mabrfl run``, the cells of a sweep and Python
programs use it alike. :func:`simulate` records nothing and returns the rounds. An :class:`Observer` watches a run.
:mod:`mabrfl.runs.finished` reads what is in a folder: which run, and whether it is finished.
"""

from mabrfl.runs.finished import finished_run, finished_summary
from mabrfl.runs.observers import Observer, RunResult, RunStart
from mabrfl.runs.session import run, simulate, weights_sha256

__all__ = ["Observer", "RunResult", "RunStart", "finished_run", "finished_summary", "run", "simulate", "weights_sha256"]
