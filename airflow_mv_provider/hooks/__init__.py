"""Find the metadata database from Airflow."""
