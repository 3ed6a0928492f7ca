"""Any batch data source of Spark, by its name."""
