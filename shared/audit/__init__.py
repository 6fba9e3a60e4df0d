"""What trainer and producer tell each other about photos: what a model saw in them, which labels an audit doubts."""
