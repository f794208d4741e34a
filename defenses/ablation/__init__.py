"""Many fine-tunings compared: a grid of choices, several seeds, intervals."""
