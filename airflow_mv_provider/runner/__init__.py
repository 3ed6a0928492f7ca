"""Run refreshes in the protocol's order; the only package that joins core, metadata, spark and sources."""
