# `make` prints the targets. Everything runs from .venv, which scripts/setup.sh makes and this file keeps up to date.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

bin := .venv/bin
stamp := .venv/.up-to-date
python_code := $(wildcard airflow_mv_provider spark_apps dags scripts tests benchmarks)
typed_code := $(wildcard airflow_mv_provider spark_apps)

.PHONY: help setup demo test test-all check fast bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(stamp) ## make .venv, and see that Java, PostgreSQL and Delta's jars are there

$(stamp): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

demo: $(stamp) ## refresh real tables on this machine and show what happened
	@$(bin)/python scripts/demo.py

test: $(stamp) ## run all tests (Spark, PostgreSQL and Airflow included), of long matrices a sample of cases
	@$(bin)/pytest

test-all: $(stamp) ## run all tests, every case of the long matrices
	@$(bin)/pytest --every-case

fast: $(stamp) ## run the tests that need no Spark, PostgreSQL or Airflow
	@$(bin)/pytest -m "not slow"

check: $(stamp) ## format, lint, check types, run the fast tests: before every push
	@$(bin)/ruff format $(python_code)
	@$(bin)/ruff check $(python_code)
	@$(bin)/mypy $(typed_code)
	@$(bin)/pytest -m "not slow"

bench: $(stamp) ## measure what a refresh costs beside the other ways; about 20 minutes
	@$(bin)/python benchmarks/refresh.py --scale $(or $(SCALE),0.1) --runs $(or $(RUNS),1)

clean: ## remove .venv and everything the tools left behind
	rm -rf .venv .demo .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
