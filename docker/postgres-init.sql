-- Airflow's database is made by the image; the provider keeps its state in one of its own.
CREATE DATABASE mv;
-- And the example DAG `shop` has a database as its source.
CREATE DATABASE shop;
