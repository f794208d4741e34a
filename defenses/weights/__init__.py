"""Weights and statistics in training: freezing, priors, averages, BatchNorm, perturbation."""
