"""Which part of a table a refresh is about."""
