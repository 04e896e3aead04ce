# Every target does the set-up it needs: a private .venv, nothing by hand, no root.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Workers of the real ring: six for two cores, because its tests wait for servers. Quick tests only compute.
WORKERS := 6

.PHONY: demo test test-full test-long test-install test-loaded test-mutants test-parsers test-stacks test-pythons quick real explore fuzz setup sync lint docs site locked coverage weight clean

demo: $(STAMP) ## the main job, measured
	@$(BIN)/segmented demo

test: $(STAMP) ## style, types, layers, and every test that no clock, no load and no other process decides
	@$(MAKE) --no-print-directory --jobs=2 lint quick

# Each of hundreds of processes would compile again what it imports, pytest and its plugins among them.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := -m pytest --no-header --quiet --dist=loadfile --no-loadscope-reorder --numprocesses=$(WORKERS)

quick: $(STAMP)
	@$(BIN)/python $(PYTEST) --numprocesses=auto -m quick tests/quick

real: $(STAMP) ## servers, processes, kills, frameworks, the examples of the pages, and the built wheel
	@$(BIN)/python $(PYTEST) -m real tests/quick/contract tests/quick/orders tests/real

test-full: $(STAMP) ## `make test` and `make real`
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory real

ROUNDS := 3

test-loaded: $(STAMP) ## the quick ring with every core busy, and then on one core, ROUNDS (3) times; before a change to tests is done
	@$(BIN)/python -m tests.support.loaded $(ROUNDS)

test-mutants: $(STAMP) ## faults put into the code on purpose, each to be noticed by the tests that it names: build/mutants.txt; MUTANTS=area or name
	@$(BIN)/python -m tests.mutants $(MUTANTS)

SECONDS := 600

explore: $(STAMP) ## simulations and properties with new seeds in each round, for SECONDS (600)
	@end=$$(($$(date +%s) + $(SECONDS))); while [ $$(date +%s) -lt $$end ]; do \
	  TEST_SEEDS_TIMES=20 $(BIN)/python $(PYTEST) tests/quick/simulation tests/quick/property tests/real/property || exit 1; done

fuzz: $(STAMP) ## random damage to messages, values, files, addresses and arguments, new in each round, for SECONDS (600)
	@end=$$(($$(date +%s) + $(SECONDS))); while [ $$(date +%s) -lt $$end ]; do \
	  $(BIN)/python $(PYTEST) -m fuzz tests/real/faults tests/quick/property || exit 1; done

test-install: $(STAMP) ## the built wheel in clean environments: each extra alone, and the documented combination
	@$(BIN)/python -m pytest --no-header --quiet --numprocesses=2 tests/real/install

test-long: $(STAMP) ## what `make test-full` leaves out: more seeds, flavours of Redis, and ways for workers to die
	@$(BIN)/python -m pytest --no-header --quiet -m long

# `make real` divides the Redis sides of each test among hiredis, redis-py's own parsers and uvloop (tests/support/stacks.py).
# Here the Redis sides of the contract ring run on each of them, all under RESP2 and RESP3, sync and asyncio.
CONTRACT := $(PYTEST) -m 'not long' -k redis- tests/quick/contract

test-parsers: $(STAMP) ## the contract ring with hiredis, without it, and under uvloop
	@SEGMENTED_TEST_STACK=hiredis $(BIN)/python $(CONTRACT)
	@SEGMENTED_TEST_STACK=python PYTHONPATH=tests/support/without_hiredis $(BIN)/python $(CONTRACT)
	@SEGMENTED_TEST_STACK=uvloop $(BIN)/python $(CONTRACT)

test-stacks: $(STAMP) ## locks, pools, once, a worker and commands with the versions that users have; STACKS=oldest and the like
	@$(BIN)/python -m tests.support.versions $(STACKS)

VERSIONS := 3.11 3.12 3.13 3.14

test-pythons: $(STAMP) ## unit, contract and install rings on each Python that the machine has
	@for version in $(VERSIONS); do \
	  home=build/python-$$version; \
	  found=$$($(BIN)/uv python find --system --no-python-downloads $$version 2>/dev/null) || { \
	    echo "Python $$version: not on this machine, left out"; continue; }; \
	  { $(BIN)/uv venv --quiet --allow-existing --python "$$found" $$home && \
	  $(BIN)/uv pip install --quiet --python $$home/bin/python --editable '.[dev]' && \
	  $$home/bin/python -V && \
	  $$home/bin/python $(PYTEST) -m quick && \
	  $$home/bin/python -m pytest --no-header --quiet --numprocesses=2 tests/real/install; } || exit 1; \
	done

setup: $(STAMP)
	@echo "ready: $(BIN)/segmented --help"

sync: $(STAMP) ## write the modules for threads from those for asyncio
	@$(BIN)/python -m tests.support.sync_of

lint: $(STAMP) ## style, types and layers; each tool runs, also after another has failed
	@failed=0; \
	$(BIN)/ruff check --quiet || failed=1; \
	$(BIN)/ruff format --check --quiet || failed=1; \
	report=$$($(BIN)/lint-imports --no-logo --no-cache) || failed=1; echo "$$report" | tail -n $$((1 + failed * 1000)); \
	$(BIN)/mypy || failed=1; \
	exit $$failed

docs: $(STAMP) ## write the generated pages and charts, then check every link
	@for page in command-line metrics python worker-settings; do \
	  $(BIN)/python -m tests.support.reference $$page > docs/reference/$$page.new && \
	  mv docs/reference/$$page.new docs/reference/$$page.md || exit 1; \
	done
	@$(BIN)/python -m tests.support.contract.locks.kinds > docs/reference/lock-kinds.new
	@mv docs/reference/lock-kinds.new docs/reference/lock-kinds.md
	@$(BIN)/python -m tests.support.glossary
	@$(BIN)/python -m tests.support.proofs > docs/reference/proofs.new
	@mv docs/reference/proofs.new docs/reference/proofs.md
	@$(BIN)/python -m bench.readme_chart docs/results/2026-11-28 docs/charts/locks.svg >/dev/null
	@$(BIN)/python -m bench.micro.shards.page bench/micro/shards/results.json docs/charts/shards.svg docs/explanation/units-between-shards.md
	@$(BIN)/python -m pytest --no-header --quiet tests/quick/tidy/test_docs.py

# One resolution for every environment: requirements/dev.txt holds one version of each package, for each Python from 3.11 on
# Linux and macOS, with the hashes of its files. The other files are parts of it, for pip takes the hashes of a file only
# for packages that stand in it. Only test-install and test-pythons resolve the ranges of pyproject.toml anew, on purpose:
# they show that a user's installation works, which has no lock.
LOCK := pip compile --quiet --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
	--custom-compile-command 'make locked'
EVERYWHERE := --universal --python-version 3.11 --fork-strategy fewest
IMAGE := --constraint requirements/dev.txt --python-platform linux --python-version 3.13
WORKER := --extra cli --extra workers --extra postgres --extra fast

weight: $(STAMP) ## what a reader has to carry: lines, files, words of the docs, public names
	@$(BIN)/python -m tests.support.weight

site: $(STAMP) ## the pages as a site with search and an API reference: build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site: open build/site/index.html, or python3 -m http.server --bind 127.0.0.1 --directory build/site"

locked: $(STAMP) ## write the lock files again, with the newest versions that pyproject.toml allows
	@$(BIN)/uv $(LOCK) $(EVERYWHERE) --upgrade --extra dev pyproject.toml --output-file requirements/dev.txt >/dev/null
	@echo uv | $(BIN)/uv $(LOCK) $(EVERYWHERE) --constraint requirements/dev.txt - --output-file requirements/uv.txt >/dev/null
	@echo hatchling | $(BIN)/uv $(LOCK) $(IMAGE) - --output-file requirements/build.txt >/dev/null
	@$(BIN)/uv $(LOCK) $(IMAGE) $(WORKER) pyproject.toml --output-file requirements/worker.txt >/dev/null
	@$(BIN)/uv $(LOCK) $(IMAGE) $(WORKER) --extra bench pyproject.toml --output-file requirements/locust.txt >/dev/null

coverage: $(STAMP)
	@$(BIN)/python -m coverage erase
	@$(BIN)/python -m coverage run -m pytest --no-header
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

clean:
	@rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find segmented workers bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The first of these that is 3.11 or newer makes the environment; one that is there is kept and updated.
PYTHONS := python3 python3.13 python3.12 python3.11

# The versions and hashes are those of the lock, so a new release of a dependency changes nothing here, but for one thing:
# to build a package that has no wheel (celery-once), the newest setuptools is taken, as there are no hashes for that.
# uv installs in a tenth of pip's time. It does not read pip's settings: where those name another index, pip goes on.
INSTALL := $(BIN)/pip install --quiet --quiet --disable-pip-version-check

$(STAMP): pyproject.toml requirements/dev.txt requirements/uv.txt
	@test -x $(BIN)/pip || { \
	  found=; \
	  for python in $(PYTHONS); do \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    found=$$python; break; \
	  done; \
	  if [ -z "$$found" ]; then echo "Python 3.11 or newer is needed: none of '$(PYTHONS)' is one." >&2; exit 1; fi; \
	  $$found -m venv $(VENV); \
	}
	@echo "installing into $(VENV) (takes some seconds the first time)"
	@$(INSTALL) --require-hashes --requirement requirements/uv.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements/dev.txt || \
	  $(INSTALL) --require-hashes --requirement requirements/dev.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@
