"""Adversarial examples as files: pictures in, pictures out, each verified as it is read back from its file."""
