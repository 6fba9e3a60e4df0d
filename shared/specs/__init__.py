"""What is asked of the workers and of the trainer, and the options that a person types for it."""
