-- Airflow's database is made by the image; the provider keeps its state in one of its own.
CREATE DATABASE mv;
