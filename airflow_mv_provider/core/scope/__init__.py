"""The part of a table that a refresh covers."""
