"""What people ask about rows: those that a refresh would change, and what has happened to one."""
