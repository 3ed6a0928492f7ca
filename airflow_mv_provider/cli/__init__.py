"""The command lines `amv` and `airflow mv` and the submitted driver, with their output and exit codes."""
