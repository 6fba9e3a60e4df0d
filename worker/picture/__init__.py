"""Image bytes to the stored picture: decoding, resizing, encoding."""
