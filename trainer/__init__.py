"""From a manifest to a measured TFLite detector: stream, train, evaluate, export, report."""
