# Everything runs in .venv, made from hashed requirements with plain pip.
# Override with `make PYTHON=python3.13 ...`.

PYTHON ?= python3
PORT ?= 8080
STORE ?= sqlite:///data/duetime.db
VENV := .venv
BIN := $(VENV)/bin
SAM ?= $(CURDIR)/.venv-sam/bin/sam
# Python compiles what it imports when it first does; pip would compile all there is, which takes as long as the rest.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile

# What `make build` builds for: the template's defaults. The layer must be of the architecture and the runtime that
# are deployed, so `make deploy` passes both on. BUILD_FOR=this-machine makes a layer for local emulators.
template_default = $(shell awk '$$1 == "$(1):" {found = 1} found && $$1 == "Default:" {print $$2; exit}' template.yaml)
RUNTIME ?= $(call template_default,Runtime)
ARCH ?= $(call template_default,Architecture)
BUILD_FOR ?= lambda
STAGE ?= dev
# An interpreter of the runtime's minor version, when `pythonX.Y` on the PATH is none.
RUNTIME_PYTHON ?=
# 1: a layer without bytecode will do, whose cold starts take longer.
ALLOW_NO_BYTECODE ?=
# The pip of the build: any Python with pip will do.
BUILD_PYTHON ?= $(firstword $(wildcard $(CURDIR)/.venv-sam/bin/python $(CURDIR)/$(BIN)/python) $(PYTHON))
export RUNTIME ARCH BUILD_FOR RUNTIME_PYTHON ALLOW_NO_BYTECODE
export SAM_CLI_TELEMETRY := 0
# SAM and boto3 read this one alone, the AWS CLI AWS_REGION first.
ifdef AWS_REGION
export AWS_DEFAULT_REGION := $(AWS_REGION)
endif
# Tests start a hundred processes: without bytecode on disk each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# -- environments ---------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Duetime needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-installed: requirements/run.txt pyproject.toml clients/python/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements/run.txt
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable clients/python --editable .
	@touch $@

$(VENV)/.dev-installed: requirements/dev.txt pyproject.toml clients/python/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable clients/python --editable .
	@touch $@ $(VENV)/.run-installed

# Tools that pin what we pin too, each in an environment of its own: requirements/<name>.txt makes .venv-<name>.
.venv-%/.installed: requirements/%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(PIP_INSTALL) --require-hashes --no-deps -r $<
	@touch $@

.PHONY: ministack
ministack: .venv-ministack/.installed ## Install the AWS emulator that tests use

TOOLS := .venv-sam/.installed .venv-ministack/.installed .venv-lambda-runtime/.installed

# The stand-in for MongoDB is there for some Pythons and machines only; without it the tests of that store are skipped.
.PHONY: mongodb
mongodb: ## Install the MongoDB server that tests use, where there is one for this machine
	@$(MAKE) --silent .venv-mongodb/.installed || echo "no SecantusDB for this machine: set DUETIME_TEST_MONGODB_URL"

# PostgreSQL 18, which scripts/server.sh starts; without it, the same.
.PHONY: postgresql
postgresql: ## Install the PostgreSQL server that tests use, where there is one for this machine
	@$(MAKE) --silent .venv-postgresql/.installed || \
	  echo "no embedded PostgreSQL for this machine: set DUETIME_TEST_POSTGRESQL_URL"

.PHONY: install
install: $(VENV)/.dev-installed $(TOOLS) mongodb postgresql ## Install everything that developing needs

# -- use ------------------------------------------------------------------------------------------------------

.PHONY: run
run: $(VENV)/.run-installed ## Serve API, console and poller on http://127.0.0.1:8080 (PORT=, STORE=)
	$(BIN)/duetime serve --port $(PORT) --store "$(STORE)"

# -- AWS ------------------------------------------------------------------------------------------------------

.PHONY: build
build: .venv-sam/.installed ## sam build (RUNTIME=, ARCH=, RUNTIME_PYTHON=)
	$(SAM) build --parameter-overrides Runtime=$(RUNTIME) Architecture=$(ARCH)

# Replaces a table by an empty one, when the template asks for that: ALLOW_REPLACEMENT=1. Nothing else lets it.
ALLOW_REPLACEMENT ?=
# Requests to the API go to new code by and by, and an alarm rolls the stack back: GRADUAL=Canary10Percent5Minutes.
GRADUAL ?=
# More options of `sam deploy`: --no-confirm-changeset where nobody is there to ask.
DEPLOY_OPTIONS ?=
PROTECT_TABLES := $(CURDIR)/.venv-sam/bin/python scripts/protect_tables.py duetime-$(STAGE)

.PHONY: deploy
deploy: build ## Build and deploy to your AWS account (STAGE=, GRADUAL=, PARAMETERS="LogRetentionDays=90 ...")
	$(PROTECT_TABLES) $(if $(ALLOW_REPLACEMENT),--allow-replacement)
	$(if $(GRADUAL),.venv-sam/bin/python scripts/deploy_gradually.py .aws-sam/build/template.yaml $(GRADUAL))
	$(SAM) deploy --stack-name duetime-$(STAGE) $(DEPLOY_OPTIONS) \
	  --parameter-overrides Stage=$(STAGE) Runtime=$(RUNTIME) Architecture=$(ARCH) $(PARAMETERS)
	$(PROTECT_TABLES)

.PHONY: aws-local
aws-local: $(VENV)/.dev-installed $(TOOLS) ## Deploy to an emulator on this machine and keep it running
	$(BIN)/python -m scripts.aws_local

# `sam build` makes build-<logical id> for each function and layer, in the root of the repository.
.PHONY: build-SharedLayer build-SenderLayer build-TimersApi build-ServiceCallsApi build-Poller build-Outbox
build-SharedLayer build-SenderLayer:
	$(BUILD_PYTHON) scripts/build_layer.py $(@:build-%=%) --out "$(ARTIFACTS_DIR)" --runtime $(RUNTIME) --architecture $(ARCH) \
	  --build-for $(BUILD_FOR) $(if $(RUNTIME_PYTHON),--runtime-python $(RUNTIME_PYTHON)) \
	  $(if $(ALLOW_NO_BYTECODE),--allow-no-bytecode)
build-TimersApi:
	cp functions/timers_api/handler.py "$(ARTIFACTS_DIR)/"
build-ServiceCallsApi:
	cp functions/service_calls_api/handler.py "$(ARTIFACTS_DIR)/"
build-Poller:
	cp functions/poller/handler.py "$(ARTIFACTS_DIR)/"
build-Outbox:
	cp functions/outbox/handler.py "$(ARTIFACTS_DIR)/"

# -- checks ---------------------------------------------------------------------------------------------------

# Processes that run tests; 0 runs them in pytest's own. Tests of processes wait more than they compute, so 4 suit 2
# cores.
TEST_WORKERS ?= 4
# Unit tests compute, and each process reads all of them before it runs the first: one for each core.
UNIT_WORKERS ?= auto
# Workers take tests from each other at the end, so none is left with the long ones.
PARALLEL := --numprocesses $(TEST_WORKERS) --dist worksteal
# These share what takes a minute to set up: a file's tests stay together.
PARALLEL_FILES := --numprocesses $(TEST_WORKERS) --dist loadfile
# Each worker reads all tests of these before it runs the first; tests/unit/docs/test_marks.py compares.
FAST_DIRECTORIES := tests/unit tests/contract tests/integration tests/aws tests/crash
SLOW_DIRECTORIES := tests/aws tests/crash tests/integration/calls tests/integration/engine tests/integration/local tests/unit/recurrence
SERVER_DIRECTORIES := tests/contract tests/integration

.PHONY: check
check: lint validate test ## The gate

.PHONY: test
test: $(VENV)/.dev-installed $(TOOLS) ## Run the test suite, 4 tests at a time (TEST_WORKERS=)
	$(BIN)/python -m pytest -m "not slow and not server and not repeated" $(PARALLEL) $(FAST_DIRECTORIES)

# Needs no tool and no server. On another Python: make test-unit PYTHON=python3.13 VENV=.venv-python3.13
.PHONY: test-unit
test-unit: $(VENV)/.dev-installed ## Run the unit tests alone, which take a minute (PYTHON=, VENV=)
	$(BIN)/python -m pytest --numprocesses $(UNIT_WORKERS) --dist worksteal tests/unit

# The same on each other Python that is here: pyenv's, or the PATH's.
.PHONY: test-pythons
test-pythons: $(VENV)/.dev-installed ## Run the unit tests on each other Python of this machine
	own=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in 3.11 3.12 3.13; do \
	  for python in "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python python$$version; do \
	    if [ $$version != "$$own" ] && "$$python" -c '' 2>/dev/null; then \
	      $(MAKE) test-unit PYTHON="$$python" VENV=.venv-python$$version || exit 1; \
	      break; \
	    fi; \
	  done; \
	done

.PHONY: test-slow
test-slow: $(VENV)/.dev-installed $(TOOLS) ## Run the tests that take minutes: crashes, the deployed stack
	eval "$$(scripts/test_databases.sh --quick)"; $(BIN)/python -m pytest -m slow $(PARALLEL_FILES) $(SLOW_DIRECTORIES)

# Where no server is to be had the skipped tests say so.
.PHONY: test-databases
test-databases: $(VENV)/.dev-installed $(TOOLS) ## Run the tests of stores on servers, which scripts/server.sh starts
	eval "$$(scripts/test_databases.sh --quick)"; $(BIN)/python -m pytest -m "server and not slow and not repeated" $(PARALLEL) \
	  $(SERVER_DIRECTORIES)

.PHONY: test-repeated
test-repeated: $(VENV)/.dev-installed $(TOOLS) ## Run on models, stand-ins and a second version what others show too
	eval "$$(scripts/test_databases.sh --quick cassandra mariadb114)"; $(BIN)/python -m pytest -m repeated $(PARALLEL) \
	  tests/contract tests/integration/cassandra

# Playwright drives a Chromium of this machine, and is nothing that Duetime needs: an environment of its own, beside
# that of the tests.
CONSOLE_PACKAGES = $$(.venv-console/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

.PHONY: test-console
test-console: $(VENV)/.dev-installed .venv-console/.installed ## Run the web console in a browser, where there is Chromium
	PYTHONPATH=$(CONSOLE_PACKAGES) $(BIN)/python -m pytest -m console tests/console

# Tools of npm, which no test runs in its own process: beside those of PyPI, in the environment that is ignored anyway.
.venv-openapi/npm/.installed: tests/openapi/package-lock.json .venv-openapi/.installed
	mkdir -p $(@D)
	cp tests/openapi/package.json tests/openapi/package-lock.json $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.PHONY: test-openapi
test-openapi: $(VENV)/.dev-installed .venv-openapi/npm/.installed ## Lint the API's document, generate clients of it, try it on a server (needs npm)
	$(BIN)/python -m pytest -m openapi tests/openapi

CHAOS_SERVERS ?= postgresql mariadb

.PHONY: chaos
chaos: $(VENV)/.dev-installed postgresql ## Kill, freeze, cut off, fill up, put clocks wrong: 10 minutes, one table (CHAOS_SERVERS=, CHAOS="--store sqlite")
	eval "$$(scripts/test_databases.sh $(CHAOS_SERVERS))"; $(BIN)/python -m tests.chaos $(CHAOS)

.PHONY: mutate
mutate: $(VENV)/.dev-installed ## Put one mistake at a time into a copy of the sources: do the tests notice?
	$(BIN)/python -m tests.mutation $(MUTATE)

.PHONY: test-all
test-all: test-slow test-databases test-repeated test-console test-openapi test ## Run all tests

.PHONY: validate
validate: $(VENV)/.dev-installed .venv-sam/.installed .venv-checkov/.installed ## The SAM template, as it is and as CloudFormation will see it
	AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-us-east-1} $(SAM) validate
	AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-us-east-1} $(SAM) validate --lint
	mkdir -p build
	.venv-sam/bin/python scripts/translate_template.py > build/template.json
	$(BIN)/cfn-lint build/template.json
	.venv-checkov/bin/checkov --config-file .checkov.yaml --file build/template.json

.PHONY: lint
lint: $(VENV)/.dev-installed ## ruff, mypy, import-linter
	$(BIN)/python clients/python/hatch_build.py
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=shared:clients/python $(BIN)/lint-imports

# Counts are those of benchmarks/instructions.json for this build of Python; another one compares nothing, and says so.
.PHONY: test-instructions
test-instructions: $(VENV)/.dev-installed ## Count the instructions of the hot paths and compare them with their limits (needs Valgrind)
	$(BIN)/python -m benchmarks.instructions

# All of benchmarks/ but what the others share, and what compares with another checkout or with limits.
NO_BENCHMARKS := figures growth_chart instructions lone_timers receiver service
BENCHMARKS := $(filter-out $(NO_BENCHMARKS),$(basename $(notdir $(wildcard benchmarks/*.py))))

.PHONY: bench
bench: $(VENV)/.dev-installed $(TOOLS) ## Run all benchmarks, one after the other, into build/bench.jsonl
	mkdir -p build
	eval "$$(scripts/test_databases.sh cassandra mariadb mysql postgresql)"; for name in $(BENCHMARKS); do \
	  echo "== $$name" >&2; $(BIN)/python -m benchmarks.$$name --json || exit 1; \
	done > build/bench.jsonl

.venv-peers/npm/.installed: benchmarks/peers/package-lock.json .venv-peers/.installed
	mkdir -p $(@D)
	cp benchmarks/peers/package.json benchmarks/peers/package-lock.json $(@D)
	npm ci --prefix $(@D) --no-audit --no-fund --silent
	@touch $@

# Each is `python -m benchmarks.peers.NAME --help`; PEERS are its arguments.
PEER_BENCHMARKS ?= instant restart churn schedules

.PHONY: peers
peers: $(VENV)/.dev-installed postgresql .venv-peers/npm/.installed ## What users see, beside other schedulers: hours, needs npm and Redis (PEER_BENCHMARKS=, PEERS=)
	eval "$$(scripts/test_databases.sh postgresql)"; for name in $(PEER_BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.peers.$$name $(PEERS) || exit 1; done

# `make run` brings the drivers that most need; the others have no packages for some machines.
RUN_EXTRAS := $(addprefix --extra ,dynamodb local mongodb mysql postgresql sql)
ALL_EXTRAS := $(RUN_EXTRAS) $(addprefix --extra ,cassandra oracle sqlserver)

.PHONY: lock
lock: ## Resolve the requirements files again (needs uv)
	for purpose in "run $(RUN_EXTRAS) --group build" "lambda" "dev $(ALL_EXTRAS) --group build --group test --group check"; do \
	  set -- $$purpose; name=$$1; shift; \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-emit-package duetime-client --custom-compile-command "make lock" pyproject.toml "$$@" -o requirements/$$name.txt || exit 1; \
	done
	for tool in sam checkov ministack mongodb postgresql lambda-runtime console openapi peers; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command "make lock" requirements/$$tool.in -o requirements/$$tool.txt || exit 1; \
	done
	cp requirements/lambda.txt shared/requirements.txt
