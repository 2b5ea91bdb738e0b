"""From an actual and a target schema to an ordered plan of destination changes."""
