"""Shards -> batches: records, examples, augmentation, streams."""
