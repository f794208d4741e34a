"""Defenses: adversarial fine-tuning and what it is made of. Empty for now; the evaluation they answer to comes
first."""
