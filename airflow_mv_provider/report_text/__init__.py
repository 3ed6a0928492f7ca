"""Reports and statuses as text for people: plain lines and aligned columns, without wrapping or animation."""
