"""Detections against truth: mean average precision, curves, latency."""
