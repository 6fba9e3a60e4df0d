"""The detector: layers, priors, target assignment, loss."""
