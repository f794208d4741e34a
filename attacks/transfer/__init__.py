"""Attacks crafted on one model so that they also fool others."""
