"""The Delta destination beside delta-rs and a plain PySpark job: the same changes, equal tables."""
