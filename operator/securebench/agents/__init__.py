"""What runs in the harness container: checked configuration, limits, extraction."""
