"""The page "Refreshable tables", mounted by Airflow's API server. It reads our database and Airflow's, no table."""
