"""One fine-tuning, from its first step to the epoch that is kept."""
