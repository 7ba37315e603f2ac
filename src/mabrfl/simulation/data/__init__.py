"""Data sets and their partition among clients.

:func:`load` returns a data set by its name and fetches it if need be; :func:`check` and :func:`fetch` are the commands
of ``mabrfl data``. A :class:`Dataset` of your own needs no file here. :mod:`~mabrfl.simulation.data.partition` deals
the examples out to the clients.
"""

from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.data.library import DATASETS, DatasetCheck, check, fetch, is_embedded, load, locate

__all__ = ["DATASETS", "Dataset", "DatasetCheck", "check", "fetch", "is_embedded", "load", "locate"]
