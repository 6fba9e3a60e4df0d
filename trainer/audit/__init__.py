"""The audit of a job's labels: folds that train without their part, and what they say against the labels."""
