"""The command line and Python facade, which run on the tester's machine."""
