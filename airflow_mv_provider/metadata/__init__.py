"""The metadata database, which decides who may refresh. One transaction per method, one compare-and-set per change."""
