"""The training loop and what it keeps: steps, schedule, checkpoints, monitoring."""
