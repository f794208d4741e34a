"""Perturbations that are fitted to many images of one split and judged on others."""
