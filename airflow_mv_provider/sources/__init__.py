"""Sources: read a source's newest frontier, and its rows at a pinned frontier."""
