"""How old a table is: by which of two times, whether that is too old, and when it will be."""
