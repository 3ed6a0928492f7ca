"""Airflow's plugin: navigation, a tab on each DAG, and the application behind them."""
