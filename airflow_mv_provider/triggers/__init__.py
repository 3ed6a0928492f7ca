"""Triggers for the triggerer, which has no Spark and reads a table's Delta log itself."""
