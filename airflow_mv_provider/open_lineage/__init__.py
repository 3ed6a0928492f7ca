"""What OpenLineage is told of refreshes, through Airflow's own integration (the extra `openlineage`)."""
