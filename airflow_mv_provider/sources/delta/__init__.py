"""A Delta table."""
