"""One pair of paths to one record of a TFRecord file."""
