"""Rules for requests to the model provider and for its responses; pure functions."""
