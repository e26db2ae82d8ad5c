from support.cli_fixtures import finished, interrupt, shell

__all__ = ["finished", "interrupt", "shell"]
