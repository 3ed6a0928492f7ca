"""Refresh several tables in one state of the source that they share."""
