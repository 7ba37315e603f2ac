"""The simulated federation: its rounds, its clients, their data and their training. Needs the extra ``mabrfl[sim]``.

- :mod:`mabrfl.simulation.round`: one round, stage by stage. Start here.
- :mod:`mabrfl.simulation.simulator`: :class:`~mabrfl.simulation.simulator.Simulation` and
  :func:`~mabrfl.simulation.simulator.simulate`, for many rounds; both are also in :mod:`mabrfl`.
- :mod:`mabrfl.simulation.federation`: the clients, the attackers among them, and the updates they send.
- :mod:`mabrfl.simulation.data`, :mod:`mabrfl.simulation.training`: data sets and local training.
- :mod:`mabrfl.simulation.oracle`: servers that know the attackers, for comparison.

Import the modules themselves: only some of them need PyTorch.
"""
