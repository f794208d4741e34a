"""Attacks that are made for one threat other than a norm: rotations, translations, flow fields."""
