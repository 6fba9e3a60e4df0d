"""The whole pipeline as processes of this machine."""
