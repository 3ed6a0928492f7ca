"""How, on Delta: SQL and DataFrames only, so that local mode, spark-submit and Connect run the same code."""
