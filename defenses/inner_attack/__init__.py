"""How a training makes its adversarial images."""
