"""Refreshable Delta tables for Apache Airflow: load beside the table, compare, publish only what differs."""

__version__ = "0.1.0"
