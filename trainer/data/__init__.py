"""Shards to batches: records, examples, augmentation, streams."""
