"""Attacks that see logits and no gradient."""
