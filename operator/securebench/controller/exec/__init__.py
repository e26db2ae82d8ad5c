"""The server side of the exec protocol, in the Pods of operator and viewers."""
