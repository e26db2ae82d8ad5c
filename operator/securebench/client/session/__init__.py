"""One whole run of a tester."""
