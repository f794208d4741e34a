"""Attacks whose perturbation is bounded by LPIPS, the distance between the features of a network."""
