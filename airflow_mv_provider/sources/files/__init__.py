"""Files in a folder."""
