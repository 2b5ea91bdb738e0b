"""What a test of etl, ours or yours, needs: a real Postgres and the shipped suites."""
