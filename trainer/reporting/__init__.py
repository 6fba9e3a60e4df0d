"""Figures of a run -> pictures, tables and pages."""
