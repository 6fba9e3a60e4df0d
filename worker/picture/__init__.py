"""Image bytes -> the stored picture: decoding, resizing, encoding."""
