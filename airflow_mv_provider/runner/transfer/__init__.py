"""Load a table once from another source; export it as files."""
