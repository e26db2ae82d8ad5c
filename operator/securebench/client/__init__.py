"""The tester's process: command line and library."""
