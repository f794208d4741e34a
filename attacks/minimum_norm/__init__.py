"""Attacks that look for the misclassified point nearest to an image, whatever its distance (minimum-norm attacks)."""
