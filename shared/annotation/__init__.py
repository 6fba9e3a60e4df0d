"""VOC XML bytes -> labels and boxes in image pixels, and what was mended on the way. Only this package uses lxml."""
