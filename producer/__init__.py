"""From a VOC folder to a plan, and the promise that the plan becomes true: submit, feed, reconcile, watch."""
