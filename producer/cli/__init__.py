"""Commands of the command line: their options, and what they share at their start and end."""
