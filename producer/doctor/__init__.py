"""Checks of the set-up as a whole, and of one job from end to end."""
