"""A table or a query of a database as source."""
