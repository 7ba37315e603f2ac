"""Tables, figures and reports of results.

- :func:`mabrfl.reports.tables.tabulate`: the paper's Table 1, written by :data:`mabrfl.reports.table_formats.FORMATS`.
- :func:`mabrfl.reports.detection.detection_table`: attackers found and honest clients rejected, by condition.
- :func:`mabrfl.reports.ablation.ablation_table`: a defense without each of its parts.
- :func:`mabrfl.reports.figures.draw`: figures of many runs; :mod:`mabrfl.reports.run_pictures` has those of one.
- :func:`mabrfl.reports.page.report`: one HTML page with all of these.
- :func:`mabrfl.reports.rendering.write_rendered`: the files in ``results/``.

Which runs belong together is decided in :mod:`mabrfl.sweeps.grouping`, their names in :mod:`mabrfl.reports.labels`. The
modules are imported one by one, because some need Matplotlib or Jinja2.
"""
