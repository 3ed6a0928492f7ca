"""Whether tables follow their sources: decided from the history, and from what keeps refreshes from beginning."""
