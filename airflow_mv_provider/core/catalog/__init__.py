"""Names in Spark's catalog: what one leads to, and what a refresh does about the name of its main."""
