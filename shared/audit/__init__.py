"""What trainer and producer say to each other of an audit of labels."""
