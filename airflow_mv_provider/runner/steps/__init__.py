"""The steps of one attempt."""
