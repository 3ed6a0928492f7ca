"""What the triggerer waits for: it has no Spark, and reads a table's log by itself."""
