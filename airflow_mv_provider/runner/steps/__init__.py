"""What one attempt does, step by step."""
