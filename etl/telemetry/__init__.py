"""Metrics, and the set-up of structured logs."""
