"""A trained network to `.tflite` files, and the gate that they must pass."""
