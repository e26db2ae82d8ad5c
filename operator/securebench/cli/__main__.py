"""Run the command line with ``python -m securebench.cli``."""

from securebench.cli.main import main

main()
