"""Which tables are made of which sources and tables: a graph, and where its nodes are drawn."""
