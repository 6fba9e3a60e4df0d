"""A job from its start to its end: handed over or run here, waited for, served, measured."""
