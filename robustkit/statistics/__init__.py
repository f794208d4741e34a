"""How sure a number is: intervals of shares, crossed effects, bounds of randomized smoothing."""
