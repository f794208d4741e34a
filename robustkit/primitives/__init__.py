"""What the author of an attack needs: rows, noise, threat models, losses, the protocol and the registry."""
