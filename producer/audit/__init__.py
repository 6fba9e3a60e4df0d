"""The audit of a job's labels as a person asks for it: its runs, its results, and the labels that it corrects."""
