"""Predict the cost of a fine-tuning and warn of its choices before it is run."""
