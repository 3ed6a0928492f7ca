"""In which order: the only room that joins core, metadata, spark and sources."""
