-- One transaction of the load generator, for pgbench.
\set customer random(1, 1000)
\set amount random(1, 50000)
BEGIN;
INSERT INTO public.orders (customer_id, amount) VALUES (:customer, :amount / 100.0);
UPDATE public.customers SET name = 'customer ' || :customer || '/' || :amount WHERE id = :customer;
DELETE FROM public.orders WHERE id = (SELECT min(id) FROM public.orders);
COMMIT;
