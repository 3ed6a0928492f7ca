"""The history of refreshes: reports, the newest ones, what they covered, and how long it is kept."""
