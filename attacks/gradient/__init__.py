"""Attacks that follow the gradient of a loss with respect to the image."""
