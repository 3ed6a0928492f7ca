"""The page "Refreshable tables", mounted by Airflow's API server. It reads databases (Airflow's and ours), no table."""
