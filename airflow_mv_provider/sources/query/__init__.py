"""A query over Delta tables."""
