"""What people write down: tables, sources, DAGs, names and types."""
