"""From where: what a source's newest state is, and its rows at a pinned state."""
