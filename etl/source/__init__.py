"""The Postgres side: connections, slots, publications, the replication stream, the snapshot copy."""
