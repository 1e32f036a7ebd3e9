# Every target does its own set-up: a fresh machine needs python3 (3.11 or newer) with venv, and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: serve test test-slow check lint types imports format clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

serve: $(READY)
	$(BIN)/moorage serve

test: $(READY)
	$(BIN)/pytest -m "not slow"

test-slow: $(READY)
	$(BIN)/pytest -m slow --timeout 1800

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
