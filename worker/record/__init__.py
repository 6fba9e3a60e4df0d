"""One pair of paths -> one record of a TFRecord file."""
