"""Starts the command line by ``python -m securebench.cli``."""

from securebench.cli.main import main

main()
