"""The trainer's commands, as they are typed."""
