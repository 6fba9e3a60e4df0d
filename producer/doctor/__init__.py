"""Checks: the set-up as a whole, and one job from end to end."""
