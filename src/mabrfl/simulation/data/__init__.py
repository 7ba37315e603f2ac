"""Data sets and their partition among clients."""

from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.data.library import DATASETS, DatasetCheck, check, fetch, is_embedded, load, locate

__all__ = ["DATASETS", "Dataset", "DatasetCheck", "check", "fetch", "is_embedded", "load", "locate"]
