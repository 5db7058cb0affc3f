# Every command of the project.  Paths are relative, so that the folder may have any name.
# PYTHON=... chooses the interpreter; `.venv` is made when it is needed and kept up to date by tools/install.py.

PYTHON ?= python3
DEMO_ARGS ?=
TEST_ARGS ?=
# processes that run tests side by side, for two cores: three quarters of the time a test of a cluster or of Kafka waits
test test-cluster: TEST_WORKERS ?= 6
test-quick test-exhaustive test-sim: TEST_WORKERS ?= 4
# how long a campaign searches
MINUTES ?= 60
CAMPAIGN_ARGS ?=
BENCH ?= codec
BENCH_ARGS ?=

# make exports variables given on its command line; pytest, pip and Spark would not know ours
unexport DEMO_ARGS TEST_ARGS TEST_WORKERS MINUTES CAMPAIGN_ARGS BENCH BENCH_ARGS

.DEFAULT_GOAL := help
.PHONY: help demo examples docs-site test test-quick test-exhaustive test-sim test-cluster test-deploy test-client-suites campaign lint lint-types lint-cores lint-generated lint-imports lint-pages lint-style format bench proto docs clean

define install
@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	echo "error: there is no '$(PYTHON)'. Install Python 3.11 or newer, or name one: make $@ PYTHON=/path/to/python3.11" >&2; exit 1; }
@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "error: replog needs Python 3.11 or newer, and $(PYTHON) is $$("$(PYTHON)" -V 2>&1). Name a newer one: make $@ PYTHON=/path/to/python3.11" >&2; exit 1; }
@"$(PYTHON)" tools/install.py $(1)
endef

help:
	@echo "make demo   three brokers, a killed leader, every record read back, twice by Spark  (DEMO_ARGS=--fast)"
	@echo "make examples   what the pipelines of examples/ need"
	@echo "make test   all tests, side by side in TEST_WORKERS=6 processes                    (TEST_ARGS='-k codec')"
	@echo "make test-quick, test-exhaustive, test-sim, test-cluster   parts of it: CONTRIBUTING.md says which to run when"
	@echo "make test-deploy   Spark clusters, an example and the bench with Kafka, minutes of JVMs: not in make test"
	@echo "make test-client-suites   what the authors of Kafka's clients test them with: not in make test"
	@echo "make campaign   simulations, chaos, fuzz, safeguards taken out: fresh seeds for MINUTES=60"
	@echo "make lint   format, lint, types, import contracts, docstrings, generated files"
	@echo "make format put the code into shape"
	@echo "make bench  one measurement                                                        (BENCH=log-append)"
	@echo "make proto  write replog/pb from proto/"
	@echo "make docs   write the generated pages"
	@echo "make docs-site  the pages of docs/ and a reference as a site in build/site"
	@echo "make clean  remove .venv and everything that was made"
	@echo "PYTHON=/path/to/python3.11 chooses the interpreter."

demo:
	$(call install,demo)
	@.venv/bin/python -m examples.demo $(DEMO_ARGS)

examples:
	$(call install,examples)
	@echo "examples/README.md says what there is to run, for example: .venv/bin/python examples/delays_by_hour.py"

test:
	$(call install,test)
	@.venv/bin/python -m pytest -n $(TEST_WORKERS) $(TEST_ARGS)

# together they are all tests: tests/lint/parts_of_tests.py
test-quick:
	$(call install,test)
	@.venv/bin/python -m pytest -n $(TEST_WORKERS) -m "not exhaustive" tests/unit tests/golden tests/contract $(TEST_ARGS)

test-exhaustive:
	$(call install,test)
	@.venv/bin/python -m pytest -n $(TEST_WORKERS) -m exhaustive tests/unit $(TEST_ARGS)

test-sim:
	$(call install,test)
	@.venv/bin/python -m pytest -n $(TEST_WORKERS) tests/sim $(TEST_ARGS)

test-cluster:
	$(call install,test)
	@.venv/bin/python -m pytest -n $(TEST_WORKERS) tests/cluster tests/kafka tests/spark $(TEST_ARGS)

# not a part of `make test`: each test starts several JVMs
test-deploy:
	$(call install,deploy)
	@.venv/bin/python -m pytest tests/deploy $(TEST_ARGS)

# nor this: Go, C and Python clients, built once, with a broker of ours and with Apache Kafka
test-client-suites:
	$(call install,test)
	@.venv/bin/python -m pytest tests/kafka/suites $(TEST_ARGS)

# what finds more with more time: tests/campaign/kinds.py
campaign:
	$(call install,test)
	@.venv/bin/python -m tests.campaign run --minutes $(MINUTES) $(CAMPAIGN_ARGS)

# side by side, what takes longest first; each part's output in one piece where this make can, and errors of all parts
lint:
	$(call install,dev)
	@$(MAKE) --no-print-directory --jobs=2 --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
		lint-types lint-cores lint-generated lint-imports lint-pages lint-style

# one after the other: they share mypy's cache
lint-types:
	.venv/bin/mypy
	.venv/bin/mypy tools/check_wheel.py tools/install.py tools/generate.py tools/quorum_roles.py tools/spark_options.py \
		tools/pictures.py tools/site_pages.py tools/stream_soak.py tools/once_soak.py tools/kafka_messages.py tools/oldest_spark.py tools/spark_memory.py tools/kafka_clients.py tools/rights_page.py
	.venv/bin/mypy tests/typing/client_outcomes.py

lint-cores:
	.venv/bin/pyright --pythonpath .venv/bin/python

lint-generated:
	.venv/bin/python tools/kafka_messages.py --check
	.venv/bin/python tools/generate.py --check
	.venv/bin/python tools/quorum_roles.py --check
	.venv/bin/python tools/spark_options.py --check
	.venv/bin/python tools/kafka_clients.py --check
	.venv/bin/python tools/rights_page.py --check

lint-imports:
	.venv/bin/lint-imports --no-logo

lint-pages:
	.venv/bin/python -m tests.lint

lint-style:
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .

format:
	$(call install,dev)
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench:
	$(call install,bench)
	@.venv/bin/python -m bench run $(BENCH) $(BENCH_ARGS)

proto:
	$(call install,dev)
	.venv/bin/python tools/generate.py

docs:
	$(call install,test)
	.venv/bin/python -m replog.config.docs > docs/CONFIGURATION.md.new
	mv docs/CONFIGURATION.md.new docs/CONFIGURATION.md
	.venv/bin/python tools/quorum_roles.py
	.venv/bin/python tools/spark_options.py
	.venv/bin/python tools/rights_page.py

# strict: a broken link or an unknown name ends it (with --quiet it would not)
docs-site:
	$(call install,docs-site)
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	@echo "build/site/index.html; with search: .venv/bin/python -m http.server -d build/site"

clean:
	rm -rf .venv .venv-oldest-spark build dist *.egg-info spark-warehouse artifacts metastore_db derby.log
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find replog \( -name '*.so' -o -name '_*.c' \) -delete
