"""From a VOC folder to a plan, and the service that carries the plan out: submit, feed, reconcile, watch."""
