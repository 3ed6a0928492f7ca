"""What a person looks at, and takes back: the difference of a held refresh, and main as it was."""
