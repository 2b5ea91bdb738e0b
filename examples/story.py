"""The demo's story: a source database, and what happens to it while the pipeline runs."""

from __future__ import annotations

PUBLICATION = "etl_quickstart"

SCHEMA = f"""
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id int NOT NULL REFERENCES customers,
    note text DEFAULT 'none',
    amount numeric(10,2) NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO customers SELECT i, 'customer ' || i, (ARRAY['Berlin','Lyon','Porto'])[1 + i % 3] FROM generate_series(1, 500) i;
INSERT INTO orders (customer_id, amount) SELECT 1 + i % 500, (i % 9000) / 100.0 FROM generate_series(1, 50000) i;
CREATE PUBLICATION {PUBLICATION} FOR TABLE customers, orders WITH (publish_via_partition_root = true);
"""

STEPS: tuple[tuple[str, str], ...] = (
    (
        "plain changes",
        "INSERT INTO orders (customer_id, amount) VALUES (7, 19.99);\nUPDATE customers SET city = 'Oslo' WHERE id = 7;",
    ),
    (
        "a new column with a literal default: future rows carry it, existing rows are not rewritten",
        "ALTER TABLE orders ADD COLUMN status text DEFAULT 'pending';\nINSERT INTO orders (customer_id, amount) VALUES (8, 5.00);",
    ),
    (
        "a rename, in the same transaction as the rows around it",
        (
            "BEGIN;\nINSERT INTO orders (customer_id, amount, note) VALUES (9, 7.50, 'before the rename');\n"
            "ALTER TABLE orders RENAME COLUMN note TO remark;\n"
            "INSERT INTO orders (customer_id, amount, remark) VALUES (9, 8.50, 'after the rename');\nCOMMIT;"
        ),
    ),
    (
        "the default changes, then becomes one no other system can evaluate: the stale default is removed",
        (
            "ALTER TABLE orders ALTER COLUMN status SET DEFAULT 'new';\nINSERT INTO orders (customer_id, amount) VALUES (10, 1.00);\n"
            "ALTER TABLE orders ALTER COLUMN status SET DEFAULT 'r' || random()::text;\n"
            "INSERT INTO orders (customer_id, amount) VALUES (11, 2.00);"
        ),
    ),
    (
        "a column goes, and comes back under the same name: a new column, not the old one",
        (
            "ALTER TABLE orders DROP COLUMN remark;\nINSERT INTO orders (customer_id, amount) VALUES (12, 3.00);\n"
            "ALTER TABLE orders ADD COLUMN remark text;\nINSERT INTO orders (customer_id, amount, remark) VALUES (13, 4.00, 'again');"
        ),
    ),
    ("rows go", "DELETE FROM orders WHERE id BETWEEN 10 AND 20;"),
)
