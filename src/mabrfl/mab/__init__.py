"""MAB-RFL: the method, the paper's rule, the presets, and the hardened rule.

- :mod:`mabrfl.mab.method`: :class:`~mabrfl.mab.method.MabRfl`, the whole method; also in :mod:`mabrfl`. Start here.
- :mod:`mabrfl.mab.paper`: the paper's rule, with each of its steps.
- :mod:`mabrfl.mab.presets`: all options of the paper's rule, and the presets ``hardened``, ``paper``, ``reference``.
- :mod:`mabrfl.mab.hardened`: the rule of the default preset.
"""
