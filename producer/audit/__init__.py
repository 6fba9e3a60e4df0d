"""The audit of a job's labels as a person asks for it: its runs, its results, the labels corrected by it."""
