"""Names in Spark's catalog: what they lead to, and the names of mains."""
