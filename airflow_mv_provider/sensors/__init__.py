"""Wait for what a table does."""
