"""Stage 8, record: the files of a run, readable for people and programs. Start with :class:`RunFolder`.

A run folder holds ``config.toml`` and ``manifest.json`` from the start, one line per finished round in
``rounds.jsonl`` (:class:`RoundRecord`), and ``summary.json`` at the end (:func:`summarize`). Files are replaced
atomically and lines are written one by one, so that a killed run leaves readable files. An unfinished run also has
``checkpoint/``, from which it continues (:func:`load_checkpoint`). :mod:`mabrfl.recording.audit` is the log of
decisions that a Flower strategy writes.
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
