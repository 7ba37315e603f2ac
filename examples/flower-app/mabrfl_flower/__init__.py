"""Digits with MAB-RFL on Flower."""
