"""A trained network -> `.tflite` files, and the gate that they must pass."""
