"""The progress of a refresh: its partitions, their seal, the chunks to compare, and what is recorded of these."""
