"""Files in a folder as source."""
