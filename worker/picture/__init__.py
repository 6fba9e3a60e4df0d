"""Image bytes to the stored picture: header, orientation, decoding, resizing, encoding."""
