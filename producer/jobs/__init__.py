"""A job in storage: made, planned, reused, its state, and what a person may do to it."""
