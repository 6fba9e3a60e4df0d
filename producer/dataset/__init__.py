"""A VOC folder as it is: scanned, paired, read, split, checked. No broker, no store."""
