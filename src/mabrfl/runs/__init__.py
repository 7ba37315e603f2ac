"""One run, from its settings to its finished folder."""
