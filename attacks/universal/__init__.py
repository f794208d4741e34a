"""Attacks that fit one perturbation to many images of one split; it is judged on the images of another."""
