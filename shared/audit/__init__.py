"""What trainer and producer say to each other of photos: what a model saw in them, which labels an audit doubts."""
