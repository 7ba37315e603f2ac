"""MAB-RFL: the method, the paper's rule, the presets, and the hardened rule."""
