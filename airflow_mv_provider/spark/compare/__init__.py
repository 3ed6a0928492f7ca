"""Comparison of rows by hashes, digests and corrections; no other package compares rows."""
