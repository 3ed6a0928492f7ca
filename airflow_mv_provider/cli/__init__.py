"""What a person or a driver starts: `amv`, `airflow mv`, a submitted driver; and what they print."""
