"""Attacks that keep an image like it was to a network's features."""
