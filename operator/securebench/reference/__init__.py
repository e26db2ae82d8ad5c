"""Pages and schemas for people who write packs and runs, made from the rules themselves."""
