"""Airflow operators that refresh tables: one per phase, one for all phases, and a task group."""
