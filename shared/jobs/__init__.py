"""The files of jobs and runs: their models, names, versions and identity."""
