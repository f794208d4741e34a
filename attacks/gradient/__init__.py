"""Attacks that follow the gradient of a loss in the image."""
