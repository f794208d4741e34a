"""What is done to weights and statistics: freezing, priors, averages, BatchNorm, perturbation."""
