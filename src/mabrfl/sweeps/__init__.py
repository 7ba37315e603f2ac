"""Sweeps: many runs from one file, which can be stopped, continued, packed into one file and read again.

- :mod:`mabrfl.sweeps.sweep_file` reads a sweep file, :mod:`mabrfl.sweeps.cells` makes its cells: one run each.
- :mod:`mabrfl.sweeps.plan` says which cells are done, and how long the others take.
- :mod:`mabrfl.sweeps.scheduler` runs the cells that are not done; a launcher (:mod:`mabrfl.sweeps.launchers`) starts
  them, by default as processes of this machine (:mod:`mabrfl.sweeps.local_processes`).
- :mod:`mabrfl.sweeps.results` reads results: :func:`~mabrfl.sweeps.results.load_results`, also in :mod:`mabrfl`.
- :mod:`mabrfl.sweeps.packing` packs results into one small file.
"""
