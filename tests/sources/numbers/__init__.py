"""Numbers as source: a whole kind, for the test that adds one. In the package it would be `sources/numbers`."""
