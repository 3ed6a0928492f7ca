"""Several tables from one source: what a run of an ingestion has come to."""
