-- The database of the example DAG `shop`, and a login that may read it and nothing else. Repeatable: psql runs it at each
-- `make up`, and PostgreSQL's image once.
\set ON_ERROR_STOP on
\getenv password SHOP_READER_PASSWORD
\connect shop
CREATE TABLE IF NOT EXISTS orders (
  order_id bigint PRIMARY KEY,
  customer text NOT NULL,
  ordered_at timestamptz NOT NULL,
  amount numeric(12, 2) NOT NULL
);
INSERT INTO orders
SELECT i, 'customer ' || i % 97, TIMESTAMPTZ '2026-01-01' + i * INTERVAL '1 minute', (i % 5000) / 100.0
FROM generate_series(1, 10000) AS i
WHERE NOT EXISTS (SELECT FROM orders);
SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'shop_reader') AS is_new \gset
\if :is_new
CREATE ROLE shop_reader LOGIN;
\endif
ALTER ROLE shop_reader PASSWORD :'password';
GRANT SELECT ON orders TO shop_reader;
