# The commands of the project; `make` alone lists them. STATE and PORT choose the instance.
STATE ?= ./var
PORT ?= 8000
export STATE PORT
# Absolute, so that the instance is the same one wherever a command changes to.
override STATE := $(abspath $(STATE))

PYTHON := .venv/bin/python
SUPERVISE := PYTHONPATH=.:platform $(PYTHON) -m config.supervise
MANAGE := $(SUPERVISE) manage --
TESTS := env -u STATE -u PORT scripts/tests.sh
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run up down status logs env test test-kernel test-fast test-postgres test-all lint format lock kit kernel image doctor bench clean-instance

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

setup: ## install what is missing: Debian packages, Python packages
	@scripts/packages.sh
	@scripts/venv.sh

run: setup ## start everything in the foreground and make a first workspace; Ctrl-C stops
	@exec env $(SUPERVISE) run

up: setup ## the same in the background
	@$(SUPERVISE) up

down: ## stop every process of this instance
	@$(SUPERVISE) down

status: ## one line for each process
	@$(SUPERVISE) status

logs: ## follow the logs
	@exec env $(SUPERVISE) logs

env: ## shell lines with this instance's settings, for manage.py by hand
	@$(SUPERVISE) env

clean-instance: ## remove this instance: machines, bridge, firewall, state (CONFIRM=yes)
	@[ "$(CONFIRM)" = yes ] || { echo "This removes every machine and file of $(STATE). Say so: make clean-instance CONFIRM=yes"; exit 1; }
	@$(SUPERVISE) clean

test: setup ## every test, on SQLite
	$(TESTS) $(ARGS)

test-kernel: setup ## build the small guest kernel into the cache of the tests (about 6 minutes, once)
	@env -u STATE -u PORT PYTHONPATH=.:platform $(PYTHON) -m tests.cache

test-fast: setup ## the tests that boot no machine
	$(TESTS) --fast $(ARGS)

test-postgres: setup ## the tests that read or write rows, on a PostgreSQL of its own
	scripts/postgres.sh $(TESTS) --rows $(ARGS)

test-all: export TEST_ALL = 1
test-all: test-kernel test ## every test on both databases, with both kernels (before a release)
	scripts/postgres.sh $(TESTS) $(ARGS)

lint: setup ## formatting, lint, types, floors, layout
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	scripts/layout.sh

format: setup ## put the code into its form
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

lock: setup ## resolve the dependencies again, within the ranges of pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" .venv/bin/pip-compile --quiet --upgrade --generate-hashes --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links --strip-extras --allow-unsafe --extra dev \
		--output-file requirements-dev.lock pyproject.toml

kit: setup ## build the guest kit
	@$(SUPERVISE) kit

kernel: setup ## build the small guest kernel (about 8 minutes), used from then on
	@$(SUPERVISE) kernel

image: setup ## build the default image
	@$(SUPERVISE) image

doctor: setup ## look at each need of the host and say what mends it
	@$(MANAGE) doctor $(ARGS)

bench: setup ## measure beside baselines: boot, wake, power, files, edge (these need `make up`), API, sweep
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.boot $(ARGS)
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.wake $(ARGS)
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.power $(ARGS)
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.files
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.edge
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.api
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.sweep
