"""What the gateway adds to and takes from an exchange with a model provider; pure."""
