"""Attacks made for one threat model that is no norm: rotations and translations, flow fields, shifted colours."""
