"""Attacks that see the predicted label and nothing else."""
