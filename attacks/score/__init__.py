"""Attacks that see the logits but no gradient."""
