# `make demo` and `make test` set up what they need: one venv with pinned packages, to which `make test` adds the rest and, on
# Debian, servers. Only Python 3.11+ and make are needed.
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
READY_FOR_DEMO := $(VENV)/.ready-for-demo

.PHONY: help demo screenshots test check format bench bench-scale chaos setup constraints clean
help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(READY_FOR_DEMO) ## run a video pipeline as jobs, with live bars, and print the address of its dashboard; the videos are in build/demo
	@$(BIN)/bide demo --out build/demo

screenshots: $(READY) ## take the pictures of the dashboard in docs/pictures from the running demo: ten minutes; needs Chromium
	@$(BIN)/python -m tests.docs.screenshots

test: $(READY) ## what check does, and every test
	@$(if $(ARGS),$(MAKE) --no-print-directory check && $(BIN)/python -m pytest $(ARGS),scripts/test $(BIN)/python)

check: $(READY) ## format, lint, mypy strict, import contracts, known vulnerabilities
	@$(BIN)/python scripts/audit && $(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy && $(BIN)/lint-imports --no-logo 2>&1 | tail -n 4; exit $${PIPESTATUS[0]}

format: $(READY) ## format the code
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

bench: $(READY) .venv-bench/.ready ## the longer measurements, beside peers: over two hours; one of them: python -m bench.poller
	@failed=0; for part in service push look identities poller pipeline pacing scale uploads; do $(BIN)/python -m bench.$$part || failed=1; done; exit $$failed

bench-scale: $(READY) .venv-bench/.ready ## of these, PostgreSQL and Celery alone; needs the programs of PostgreSQL, Redis and RabbitMQ, and wrk
	@$(BIN)/python -m bench.scale $(ARGS)

chaos: $(READY) ## the tests that take long, then kill processes at random and count what is lost, beside peers
	@$(MAKE) --no-print-directory .venv-bench/.ready || echo "chaos: without the peers, which cannot be set up here" >&2
	@failed=0; $(if $(ARGS),,$(BIN)/python -m pytest -m soak --timeout=1800 -o python_files="test_*.py soak_*.py" tests || failed=1; $(BIN)/python -m pytest --hypothesis-profile=many tests/unit || failed=1;) $(BIN)/python -m bench.chaos $(ARGS) || failed=1; exit $$failed

setup: $(READY) ## only the set-up
$(READY): pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV) test
	@touch $(READY_FOR_DEMO) $@

$(READY_FOR_DEMO): pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV) demo
	@touch $@

.venv-bench/.ready: bench/constraints.txt scripts/setup-bench
	@scripts/setup-bench .venv-bench
	@touch $@

constraints: $(READY) ## compile constraints.txt again (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --all-extras pyproject.toml -o constraints.txt

clean: ## remove the venv and caches
	rm -rf $(VENV) .venv-bench .mypy_cache .ruff_cache .hypothesis .import_linter_cache
