"""The whole pipeline as processes on this machine."""
