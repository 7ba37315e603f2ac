"""The command line: one file per command.

:mod:`mabrfl.cli.main` runs a command and turns errors into messages and exit codes; :mod:`mabrfl.cli.app` lists the
commands. A command only reads its arguments and prints; :mod:`mabrfl.runs`, :mod:`mabrfl.sweeps` and
:mod:`mabrfl.reports` do the work.
"""
