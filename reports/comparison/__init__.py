"""Comparisons of models, in the terminal."""
