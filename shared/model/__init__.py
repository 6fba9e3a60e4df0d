"""What a `.tflite` is and says about itself, read with the standard library only."""
