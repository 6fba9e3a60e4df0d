"""The files that are written when a job is finished."""
