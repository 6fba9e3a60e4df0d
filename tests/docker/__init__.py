"""The Compose files on a real Docker engine, run by hand: `pytest tests/docker -m docker -s`."""
