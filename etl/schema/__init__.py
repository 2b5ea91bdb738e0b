"""Table schemas as versions: column types, masks, replica identity, and what differs between two versions."""
