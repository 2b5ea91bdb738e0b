"""Probes, metrics and the status page."""
