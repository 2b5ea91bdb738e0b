"""Spark: the Java and the jars it needs, and the session."""
