"""What a launch may ask its model provider, and what the answers mean; pure."""
