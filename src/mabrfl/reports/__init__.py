"""Tables, figures and pages from results. Figures and pages need the extra ``mabrfl[sim]``.

- :mod:`mabrfl.reports.tables`: the paper's Table 1 from results. :mod:`mabrfl.reports.detection` is the table of
  caught attackers and rejected honest clients, :mod:`mabrfl.reports.ablation` that of a defense without each part.
- :mod:`mabrfl.reports.figures`: the figures of results; :mod:`mabrfl.reports.run_pictures`: those of one run.
- :mod:`mabrfl.reports.page`: one HTML page with everything.
- :mod:`mabrfl.reports.arrangement`: which results belong to which row, table and figure. Start here.
"""
