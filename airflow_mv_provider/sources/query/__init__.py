"""A query over Delta tables as source."""
