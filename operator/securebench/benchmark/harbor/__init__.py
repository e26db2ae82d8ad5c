"""Task folders of Harbor: what a folder says, read as Harbor's own classes read it."""
