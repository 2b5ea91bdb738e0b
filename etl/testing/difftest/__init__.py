"""The differential tester: seeded histories of rows and schema changes, and an oracle that knows what must become of them.

- `generator` makes a history up as it goes, over several sessions whose transactions interleave (`rows`, `changes`,
  `publishing`, `places`). What it does is recorded (`history`), so that it can happen again.
- `ledger` keeps book at the source, in the same transactions: what each table looked like at each moment, and in each
  row the moment at which it was last written.
- `stage` lets a history happen to a real source and a real pipeline.
- `oracle` says what the destination must hold, from the source and the ledger alone.
- `shrink` makes a history that fails short.

``python -m etl.testing.difftest --help``; docs/how-to/soak.md.
"""
