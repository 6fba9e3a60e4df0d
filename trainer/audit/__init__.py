"""The audit of a job's labels: folds that train without their part, and comparing what they see with the labels."""
