"""Image bytes to the stored picture: orientation, decoding, resizing, encoding."""
