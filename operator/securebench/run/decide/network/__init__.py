"""What launches need around them: policies, a gateway, a proof of isolation."""
