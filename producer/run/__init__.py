"""Runs a job from its start to its end: hand it over or run it here, wait for it, serve, measure."""
