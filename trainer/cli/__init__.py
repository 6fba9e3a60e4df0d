"""The trainer's commands, as a person types them."""
