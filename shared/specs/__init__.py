"""What jobs and runs ask of the workers and the trainer, and the options that a person types for that."""
