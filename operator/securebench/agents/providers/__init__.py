"""What agents may ask their model providers, and what the answers mean; pure."""
