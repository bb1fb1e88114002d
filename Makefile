# Everything a contributor types. `make` alone prints the list.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check
PACKAGES := perdure actors supervisors chaos

.DEFAULT_GOAL := help
.PHONY: help venv demo test check format reference drill soak bugbank bench lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with perdure and every tool in it (PYTHON=python3.12 chooses another Python)

# The stamp is written last: an interrupted installation is taken up again.
$(STAMP): requirements.lock setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'perdure needs Python 3.11 or newer; try: make venv PYTHON=python3.11' >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --require-hashes -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: venv ## Run flaky workflows while killing their workers, and print the proof
	$(BIN)/perdure drill run flaky

test: venv ## Run the whole test suite, on two cores (ARGS='tests/core -k retry' narrows it)
	$(BIN)/python -m pytest -n 2 $(ARGS)

check: venv ## Check format, lint, types and import arrows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv ## Format the code, and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: venv ## Write docs/reference.md from the docstrings
	$(BIN)/python docs/make_reference.py

drill: venv ## Run one chaos drill (NAME=flaky)
	$(BIN)/perdure drill run $(or $(NAME),flaky)

soak: venv ## Many simulated seeds, then kills under load (SEEDS=20000 MINUTES=30)
	$(BIN)/python -m chaos.sim run --world fast --seeds 0:$(or $(SEEDS),20000) --processes 2
	$(BIN)/python -m chaos.sim run --seeds 0:$(shell expr $(or $(SEEDS),20000) / 5) --processes 2
	$(BIN)/perdure drill run actors --minutes $(or $(MINUTES),30)

bugbank: venv ## Plant bugs that bit others, and count the simulated seeds until each is found
	$(BIN)/python -m chaos.sim bugbank

bench: venv ## Measure throughput and latency on this machine
	$(BIN)/python -m bench

# Compiled with the oldest Python we support, so that each pinned release runs on all of them. Every hash of a
# release is listed, whatever its platform; addresses of package indexes are left out.
lock: ## Compile requirements.lock from setup.cfg, with Python 3.11 (LOCK_ARGS=--upgrade takes newer releases)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo 'the lock file is compiled with Python 3.11; try: make lock PYTHON=python3.11' >&2; exit 1; }
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(PYTHON) -m venv "$$dir/venv"; \
	"$$dir/venv/bin/pip" install --quiet --disable-pip-version-check pip-tools; \
	test ! -f requirements.lock || cp requirements.lock "$$dir/lock"; \
	"$$dir/venv/bin/pip-compile" --quiet $(LOCK_ARGS) --all-extras --build-deps-for editable \
		--allow-unsafe --strip-extras --generate-hashes --resolver=backtracking --no-annotate --no-header \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
		--output-file "$$dir/lock" setup.cfg; \
	{ echo '# Made by `make lock` from setup.cfg and pyproject.toml: do not edit.'; \
	  sed -e '/^#/d' -e '/^$$/d' "$$dir/lock"; } > "$$dir/final"; \
	if grep -n '://' "$$dir/final"; then echo 'an address stands in the lock file' >&2; exit 1; fi; \
	cp "$$dir/final" requirements.lock

clean: ## Remove the environment, caches and build products
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
		.coverage htmlcov reports
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +
