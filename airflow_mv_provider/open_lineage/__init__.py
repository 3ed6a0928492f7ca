"""What OpenLineage gets of refreshes, through Airflow's own integration (the extra `openlineage`)."""
