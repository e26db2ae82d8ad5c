"""The gateway's server: admission, launches, and the log of decisions."""
