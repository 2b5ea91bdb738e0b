"""What survives a restart: table states, schema versions, destination metadata, progress."""
