"""Attacks that look for the error nearest to an image, whatever its distance."""
