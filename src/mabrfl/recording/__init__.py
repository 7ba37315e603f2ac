"""Stage 8, record: what happened in each round, in files that a person and a program can read.

A run folder holds ``config.toml`` and ``manifest.json`` from the first second, one line per finished
round in ``rounds.jsonl``, and ``summary.json`` at the end. Whole files are replaced atomically and
lines are written one by one, so that a run killed at any moment leaves something readable. While a run is not
finished, ``checkpoint/`` has what it needs to go on.
"""

from mabrfl.recording.checkpoint import Checkpoint, load_checkpoint, remove_checkpoints, save_checkpoint
from mabrfl.recording.evaluation import summarize
from mabrfl.recording.folder import RunFolder
from mabrfl.recording.manifest import manifest
from mabrfl.recording.reading import ReadRounds, read_rounds, read_summary
from mabrfl.recording.record import RoundRecord

__all__ = [
    "Checkpoint",
    "ReadRounds",
    "RoundRecord",
    "RunFolder",
    "load_checkpoint",
    "manifest",
    "read_rounds",
    "read_summary",
    "remove_checkpoints",
    "save_checkpoint",
    "summarize",
]
