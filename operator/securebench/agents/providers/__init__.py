"""APIs of model providers: allow-lists for requests, token meters for responses; pure."""
