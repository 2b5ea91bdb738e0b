"""The workers between source, store and destination: states, batches, acknowledgement, retries."""
