"""What a fine-tuning costs, and what should be known before it is run."""
