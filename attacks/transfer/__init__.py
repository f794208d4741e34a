"""Attacks that query one model and whose adversarial examples are meant to break other models too."""
