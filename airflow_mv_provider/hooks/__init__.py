"""The Airflow hook that opens the metadata database."""
