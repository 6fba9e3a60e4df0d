"""What people do with jobs: submit, extend, reuse, cancel, retry, remove, verify."""
