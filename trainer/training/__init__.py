"""The training loop and its parts: steps, schedule, checkpoints, monitoring."""
