"""Refresh tables from Airflow: one operator per phase, one for all of them, and a task group."""
