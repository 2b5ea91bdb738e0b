"""The pgoutput protocol without I/O: bytes in, relations, column batches and messages out."""
