"""The simulated federation: its rounds, its clients, their data and their training."""
