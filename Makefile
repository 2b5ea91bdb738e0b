# One verb a task. Everything runs from .venv, which `setup` makes; nothing is downloaded by any other verb.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTHON := $(BIN)/python
STAMP := .venv/.installed
LOCKS := requirements-build.lock requirements-dev.lock
PYTEST_ARGS ?=
# a file's tests stay together: many share one source and one run of the pipeline
PYTEST := $(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
BENCH_ARGS ?=
DEST ?= duckdb
KILLS ?= 200
MINUTES ?= 10
FAULTS ?= kill
SEED ?= $(shell date +%s)

export PYTHONUNBUFFERED := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo test web alerts chaos chaos-delta difftest soak conformance lint format structure bench bench-delta bench-lifecycle bench-copy lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv and install everything, by hash, once a lock changes
	@:

# the pins of the jars are in etl/spark/jars.py: a new pin is fetched
$(STAMP): $(LOCKS) pyproject.toml tools/setup.sh etl/spark/jars.py
	@tools/setup.sh .venv $(LOCKS)
	@touch $@

demo: setup ## Stream a real Postgres, schema changes included, into DuckDB (or DEST=delta) and watch it
	@$(PYTHON) -m examples.demo $(DEST)

test: setup ## Run the whole suite (PYTEST_ARGS="-k name" narrows it)
	@$(PYTEST) $(PYTEST_ARGS)

web: setup ## Drive the status page in a browser, and take the pictures in docs/images (installs Chromium where it can)
	@tools/web.sh
	@ETL_WEB=1 $(PYTHON) -m pytest -m web tests/web $(PYTEST_ARGS)

alerts: ## Check the alert rules, and that each fires and is over (installs promtool where it can)
	@tools/alerts.sh

chaos: setup ## Kill the pipeline at random for long (KILLS=500 SEED=7 choose how often, and which moments)
	@ETL_CHAOS_KILLS=$(KILLS) ETL_CHAOS_SEED=$(SEED) $(PYTHON) -m pytest -m chaos $(PYTEST_ARGS)

chaos-delta: setup ## Kill daemons and their JVMs at every point of a pipeline into Delta: an hour or so
	@ETL_CHAOS_DELTA=1 $(PYTHON) -m pytest tests/chaos/delta $(PYTEST_ARGS)

difftest: setup ## Let the differential tester find planted faults, and none in short histories
	@ETL_DIFFTEST=1 $(PYTEST) tests/difftest $(PYTEST_ARGS)

soak: setup ## Random histories against an oracle (MINUTES=60 SEED=7 FAULTS=none DEST=delta)
	@$(PYTHON) -m etl.testing.difftest --seed $(SEED) --minutes $(MINUTES) --faults $(FAULTS) --destination $(DEST)

conformance: setup ## Put every destination through all cases of its suite (a slow destination takes long)
	@ETL_THOROUGH=1 $(PYTEST) tests/conformance $(PYTEST_ARGS)

lint: setup ## Check style, format, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## Rewrite what the formatter and the safe fixes can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

structure: setup ## Measure modules and functions against the limits
	@$(PYTHON) tools/structure.py

bench: setup ## Run the benchmarks (BENCH_ARGS passes options)
	@$(PYTHON) -m benchmarks.run $(BENCH_ARGS)

bench-delta: setup ## Measure the Delta destination beside its peers (BENCH_ARGS passes options)
	@$(PYTHON) -m benchmarks.delta.run $(BENCH_ARGS)

bench-copy: setup ## Measure how fast a table is read for its copy (BENCH_ARGS passes options)
	@$(PYTHON) -m benchmarks.copy.run $(BENCH_ARGS)

bench-lifecycle: setup ## Measure what copies, failing tables and comings and goings cost the others
	@$(PYTHON) -m benchmarks.lifecycle.run $(BENCH_ARGS)

lock: ## Resolve the locks again (needs uv)
	@tools/lock.sh

clean: ## Remove what the verbs made, .venv included
	@rm -rf .venv .demo .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
