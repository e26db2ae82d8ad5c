"""The program ``securebench``: entry point of operator, exec protocol and all commands."""
