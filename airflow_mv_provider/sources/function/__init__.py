"""A function that returns rows."""
