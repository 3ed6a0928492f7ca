"""What others than Spark have caused, found in its errors: databases with their drivers, streams with records."""
