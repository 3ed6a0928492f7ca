"""Access to Spark and Delta through SQL and DataFrames only: local mode, spark-submit and Connect run the same code."""
