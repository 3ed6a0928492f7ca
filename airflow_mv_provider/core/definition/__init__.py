"""The parts of a definition file: tables, sources, DAGs, names and types."""
