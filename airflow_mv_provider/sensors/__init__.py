"""Sensors that wait for a table's freshness or phase."""
