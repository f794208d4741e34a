"""What the author of an attack needs: the protocol, threat models, losses, noise, rows and the registry."""
