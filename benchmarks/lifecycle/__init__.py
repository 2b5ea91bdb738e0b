"""The life of tables under load."""
