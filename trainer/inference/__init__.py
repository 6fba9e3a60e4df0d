"""Running the exported model on pictures, without TensorFlow: all that the `predict` extra needs."""
