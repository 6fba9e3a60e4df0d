"""The exported model on pictures, free of TensorFlow: all that the `predict` extra needs."""
