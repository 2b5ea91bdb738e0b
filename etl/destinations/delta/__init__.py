"""Delta Lake through Spark: every table one Delta table, every write one commit that carries its own watermark."""
