"""A VOC folder as it lies: scanned, paired, read, split, checked. No broker, no store."""
