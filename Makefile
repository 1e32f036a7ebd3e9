# Every target does its own set-up: a fresh machine needs python3 (3.11 or newer) with venv, and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# options of the service go into ARGS: make serve ARGS='--port 9000'
.PHONY: serve test test-slow test-clients bench check lint types imports format clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

serve: $(READY)
	$(BIN)/moorage serve $(ARGS)

# two processes of one thread each: most of the time goes into models that read one stream
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" --numprocesses 2 --dist loadfile

test-slow: $(READY)
	$(BIN)/pytest -m slow --timeout 1800

# SDKs of others, and the programs in the docs that use them, against a running service
test-clients: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,clients]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/sdk tests/docs

bench: $(READY)
	$(BIN)/moorage bench $(ARGS)

check: lint types imports test

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv
