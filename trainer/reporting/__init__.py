"""Figures of a run to pictures, tables and pages."""
