"""The results volume as a tester reaches it: exec protocol and local copies."""
