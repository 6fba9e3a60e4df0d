"""The files that a finished job hands out."""
