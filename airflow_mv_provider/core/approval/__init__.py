"""Holding a refresh until a person has decided about its corrections."""
