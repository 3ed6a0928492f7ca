"""Airflow's own fixtures; imported here, before any test of this folder imports airflow."""

from tests.airflow_home import airflow

__all__ = ["airflow"]
