# Everything a person or CI runs. `make demo` and `make test` need Python alone; `make guests` installs what it needs.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
FUZZ_SECONDS ?= 60
SOAK_CALLS ?= 100000

.PHONY: setup demo test lint coverage bench fuzz soak guests check-guests lint-guests test-guests clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer was found: install one, or set PYTHON"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group test
	@touch $@

demo: setup
	$(BIN)/python -m astrid_host.cli.demo

# Some tests judge what a host does beside others, and fail where the machine is busy: what failed is run once more, alone, and has to
# pass then. Any other end than failed tests (1) ends the run.
test: setup
	$(BIN)/python -m pytest -n auto --dist worksteal || { test $$? -eq 1 && \
		echo "these run once more, alone:" && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none; }

$(VENV)/.lint-ready: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group lint --group bench
	@touch $@

lint: $(VENV)/.lint-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.bench-ready: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

bench: $(VENV)/.bench-ready
	$(BIN)/python -m benchmarks

coverage: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group coverage
	$(BIN)/python -m coverage run --source astrid_host -m pytest
	$(BIN)/python -m coverage report --skip-covered --show-missing

fuzz: setup
	$(BIN)/python tests/fuzz/fuzz.py $(FUZZ_SECONDS)

soak: setup
	$(BIN)/python tests/soak/soak.py $(SOAK_CALLS)
	$(BIN)/python tests/soak/long_conversation.py

guests:
	python3 guests/build_guests.py build

check-guests:
	python3 guests/build_guests.py check

lint-guests:
	python3 guests/build_guests.py lint

test-guests:
	python3 guests/build_guests.py test
	cd guests/assemblyscript && npm test

clean:
	rm -rf $(VENV) build dist guests/rust/target guests/assemblyscript/node_modules guests/assemblyscript/build
