"""Compare many fine-tunings: a grid of choices, several seeds, intervals."""
