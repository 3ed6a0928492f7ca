"""Rows on other ways: loaded once from another source, and exported as files."""
