# `make` prints the targets. Everything runs from .venv, which scripts/setup.sh makes and this file keeps up to date.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

.NOTPARALLEL: # two targets would install into one environment at once

bin := .venv/bin
# What is set up so far, in this place: enough for the demo; with PostgreSQL; with Chromium too.
stamp := .venv/.up-to-date-$(firstword $(shell printf %s '$(CURDIR)' | cksum))
server := $(stamp)-server
all := $(stamp)-all
gateway := $(bin)/versitygw
python_code := $(wildcard airflow_mv_provider spark_apps dags scripts tests benchmarks)
# What each process begins with, and how the files are shared: tests/engines.py.
in_two := --numprocesses 2 --dist loadscope
hands := tests/scenarios/test_other_hands.py
recorded = $(if $(RECORD),--record=$(RECORD))
typed_code := $(wildcard airflow_mv_provider spark_apps)
scanned_code := $(wildcard airflow_mv_provider spark_apps dags scripts)

.PHONY: help setup demo demo-ingest demo-views up shell down test test-cpu test-all test-rest crash-matrix matrix object-store soak \
	soak-stream soak-hands release-check lint check fast model docs trial-install bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(all) ## make .venv, and check or install Java, Delta's jars, PostgreSQL, PgBouncer, MariaDB and Chromium

$(stamp): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

$(server): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh server
	@touch $(stamp) $@

$(all): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh all
	@touch $(stamp) $(server) $@

demo: $(stamp) ## refresh a real table on this machine, kill a refresh, and show the results
	@$(bin)/python scripts/demo.py

demo-ingest: $(server) ## follow a real PostgreSQL through Debezium and Kafka, and by JDBC; kill connector, run and broker
	@$(bin)/python scripts/demo_ingest.py

demo-views: $(stamp) ## three levels of views over generated orders: a change costs what it touches; two minutes
	@$(bin)/python scripts/demo_views.py

up: $(server) ## run what docker-compose.yaml describes on this machine: Airflow, PostgreSQL, Spark; prints address and login
	@$(bin)/python scripts/topology.py up

shell: $(server) ## open a shell in which `amv` and `airflow` work on what `make up` has started
	@$(bin)/python scripts/topology.py shell

down: ## end it; VOLUMES=1 removes tables and databases, too
	@$(bin)/python scripts/topology.py down $(if $(VOLUMES),--volumes)

test: $(all) ## run what holds every promise (Spark, PostgreSQL and Airflow included), of long matrices a fixed sample
	@$(bin)/pytest $(in_two)

test-cpu: $(all) ## run the same and measure it: CPU seconds of each test, by folder and file; FILE=cpu.csv
	@$(bin)/pytest $(in_two) --cpu "$(or $(FILE),.cpu.csv)"

test-all: $(all) $(gateway) ## run all tests and every case of the long matrices: hours
	@$(bin)/pytest $(in_two) --every-case --timeout 3600

test-rest: $(all) $(gateway) ## of test-all what neither crash-matrix nor soak-hands runs; RECORD=FILE records it
	@$(bin)/pytest $(in_two) --every-case -m "not victim" --ignore $(hands) --timeout 3600 $(recorded)

crash-matrix: $(all) ## kill at every durable write, processes and PostgreSQL too: an hour; RECORD=FILE records it
	@$(bin)/pytest $(in_two) --every-case -m victim --timeout 3600 $(recorded)

matrix: $(all) ## make environments of older Airflows and Sparks, and run in them what differs; RECORD=FILE records it
	@$(bin)/pytest $(in_two) --matrix --every-case --timeout 3600 tests/matrix $(recorded)

object-store: $(all) $(gateway) ## run the tests of tables on S3 against a real server of its protocol; needs Go 1.25
	@$(bin)/pytest --every-case tests/scenarios/test_object_store.py $(recorded)

# Built for these tests alone, so it is no part of the set-up.
$(gateway):
	@command -v go >/dev/null || { echo "✗ Go 1.25 or newer is missing: the server of the S3 protocol is built with it." >&2; exit 1; }
	@GOBIN=$(CURDIR)/$(bin) go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

soak: $(all) ## N=100 refreshes under random kills and a changing source; RECORD=FILE records it
	@$(bin)/python scripts/soak.py --refreshes $(or $(N),100) $(if $(SEED),--seed $(SEED)) $(recorded)

soak-stream: $(all) ## the same over PostgreSQL, Debezium's connector and Kafka, each of which is killed, too
	@$(bin)/python scripts/soak.py --stream --refreshes $(or $(N),100) $(if $(SEED),--seed $(SEED)) $(recorded)

soak-hands: $(all) ## 500 rounds of what other people do to sources and to main; RECORD=FILE records it
	@$(bin)/pytest $(in_two) --every-case $(hands) --timeout 3600 $(recorded)

release-check: $(stamp) ## fail where a record of a long run is older than the protocol's last change; RUN=1 runs what is
	@$(bin)/python scripts/release_check.py $(if $(RUN),--run)

fast: $(stamp) ## run the tests that need no Spark, PostgreSQL or Airflow
	@$(bin)/pytest -m "not slow"

check: $(stamp) ## format, lint, run the fast tests: before every push
	@$(bin)/ruff format $(python_code)
	@$(MAKE) lint
	@$(bin)/pytest -m "not slow"

lint: $(stamp) ## check format, style, types, security and known vulnerabilities of what is pinned; changes nothing
	@$(bin)/ruff format --check --quiet $(python_code)
	@$(bin)/ruff check --quiet $(python_code)
	@$(bin)/mypy $(typed_code)
	@$(bin)/bandit --quiet --configfile pyproject.toml --recursive $(scanned_code) \
		2> >(grep -v 'nosec encountered .* but no failed test' >&2) # of each piece of an f-string but one
	@$(bin)/python scripts/audit.py

model: $(stamp) ## explore the protocol's states and show the weaker designs' traces; simulate histories and crashes
	@$(bin)/pytest -s --every-case tests/model/test_model.py tests/model/test_history_model.py tests/model/test_simulation.py tests/model/ingestion/test_ingestion_model.py

trial-install: $(stamp) ## do what the README says of installing, in an empty environment; a minute
	@$(bin)/python scripts/trial_install.py

docs: $(stamp) ## build the documentation's site into site/, warnings as errors
	@NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet --strict

bench: $(stamp) ## measure a refresh and the other ways to keep a table equal to its source; about 20 minutes
	@$(bin)/python benchmarks/refresh.py --scale $(or $(SCALE),0.1) --runs $(or $(RUNS),1)

clean: ## remove .venv and everything the tools left behind
	-if [ -x $(bin)/python ]; then $(bin)/python scripts/topology.py down --volumes; fi
	rm -rf .venv .demo .demo-ingest .demo-views site .cpu.csv .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
