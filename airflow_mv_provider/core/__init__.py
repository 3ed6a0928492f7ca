"""Decide what should happen from values alone: standard library and pydantic, no session, no clock, no database."""
