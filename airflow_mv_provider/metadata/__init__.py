"""Who may: the metadata database. One transaction per method, each state change one compare-and-set."""
