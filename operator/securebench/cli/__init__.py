"""The program `securebench`: starts operator, exec protocol and every command."""
