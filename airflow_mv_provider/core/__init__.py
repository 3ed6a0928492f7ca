"""What should happen, decided from values alone: standard library and pydantic, no session, no clock, no database."""
