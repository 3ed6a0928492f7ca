"""A Python function as source."""
