"""A Delta table as source."""
