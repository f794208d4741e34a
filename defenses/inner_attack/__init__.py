"""The attack inside a training step, and the loss that its images are used in."""
