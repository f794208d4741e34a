"""How certain a number is: intervals of shares, crossed random effects, bounds of randomized smoothing."""
