"""The loop that compares storage with what is under way and queues the difference."""
