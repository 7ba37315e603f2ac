"""Digits with a small network in NumPy: a node's process starts without torch and scikit-learn."""
