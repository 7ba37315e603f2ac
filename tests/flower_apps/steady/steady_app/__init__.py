"""Nodes whose replies depend on their number and the round alone."""
