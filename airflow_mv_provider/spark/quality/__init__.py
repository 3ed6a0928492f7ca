"""Checks of the source's rows: as conditions of rows, and evaluated over what was staged."""
