# Everything runs in .venv, made from hashed requirements with plain pip.
# Override with `make PYTHON=python3.13 ...`.

PYTHON ?= python3
PORT ?= 8080
STORE ?= sqlite:///data/duetime.db
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# -- environments ---------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Duetime needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-installed: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev-installed: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.run-installed

# The emulator pins botocore: it lives apart.
.venv-ministack/.installed: requirements/ministack.txt
	$(PYTHON) -m venv .venv-ministack
	.venv-ministack/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.PHONY: ministack
ministack: .venv-ministack/.installed ## Install the AWS emulator that tests use

.PHONY: install
install: $(VENV)/.dev-installed ## Install everything that developing needs

# -- use ------------------------------------------------------------------------------------------------------

.PHONY: run
run: $(VENV)/.run-installed ## Serve API, console and poller on http://127.0.0.1:8080 (PORT=, STORE=)
	$(BIN)/duetime serve --port $(PORT) --store "$(STORE)"

# -- checks ---------------------------------------------------------------------------------------------------

.PHONY: test
test: $(VENV)/.dev-installed .venv-ministack/.installed ## Run the test suite (under 5 minutes)
	$(BIN)/python -m pytest -m "not slow"

.PHONY: lint
lint: $(VENV)/.dev-installed ## ruff, mypy, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=shared $(BIN)/lint-imports

.PHONY: lock
lock: ## Resolve the requirements files again (needs uv)
	for purpose in "run --extra sql --extra dynamodb --extra local --group build" "lambda" \
	    "dev --extra sql --extra dynamodb --extra local --group build --group test --group check"; do \
	  set -- $$purpose; name=$$1; shift; \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command "make lock" pyproject.toml "$$@" -o requirements/$$name.txt || exit 1; \
	done
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" requirements/ministack.in -o requirements/ministack.txt
	cp requirements/lambda.txt shared/requirements.txt
