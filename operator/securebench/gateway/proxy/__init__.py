"""The proxy route: plain HTTP requests and CONNECT tunnels to allowed domains."""
