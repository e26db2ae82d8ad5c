"""Reports and comparisons of result folders."""
