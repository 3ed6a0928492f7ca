"""The only place where rows are compared: hashes, digests, corrections."""
