"""What a `.tflite` is and says of itself, read with the standard library only."""
