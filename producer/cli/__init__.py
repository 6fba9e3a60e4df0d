"""Commands of the command line: their options, what they begin and end with."""
