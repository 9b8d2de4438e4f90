# Everything a newcomer needs.  `make help` lists the targets.
#
# Only make and Python 3.11 or newer are needed: scripts/environment.py makes the virtual
# environments and brings a Java runtime from PyPI where none is installed.  An environment that is
# up to date is left alone, so nothing here needs the network twice.

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo demo-cluster memory nbcc-sql collision test deep versions again servers stores stores-suites interop ui engines interop-matrix support benchmark benchmark-full sim sim-reach chaos chaos-store crash fuzz fuzz-filters lint docs dist clean

ifndef PYTHON
PYTHON := $(firstword $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $$p; done; true))
endif
ifeq ($(PYTHON),)
$(error Python 3.11 or newer is needed: put it on PATH, or say make PYTHON=/path/to/python)
endif
ENVIRONMENT := $(PYTHON) scripts/environment.py

SECONDS ?= 600
SEED ?=

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: ## make .venv with the package, Spark, Flink and the demos' data; find or install Java
	@$(ENVIRONMENT) install demo

setup-dev: ## the same, and the tools for the tests
	@$(ENVIRONMENT) install demo dev dist

demo: setup ## three Spark streams write at once, three indexes are built, one is killed; pandas checks; 4 minutes
	@$(if $(findstring --store,$(ARGS)),$(PYTHON) scripts/stores.py $(if $(findstring s3://,$(ARGS)),,minio) spark-s3a)
	@$(ENVIRONMENT) run demo -- -m demos.main_job $(ARGS)

demo-cluster: setup ## the same on a Spark cluster, with all in MinIO, services as a job, one host killed; 8 minutes
	@$(PYTHON) scripts/stores.py minio spark-s3a
	@$(ENVIRONMENT) run demo -- -m demos.main_job --cluster $(ARGS)

memory: setup ## four writers embed and upsert texts, searched all the while, as of then and rolled back; 2 minutes
	@$(ENVIRONMENT) install memory
	@$(ENVIRONMENT) run memory -- -m demos.memory $(ARGS)

nbcc-sql: setup ## Hudi's own SQL demo in PyFlink: two pipelines into one table path; 2 minutes
	@$(ENVIRONMENT) run demo -- -m demos.nbcc_sql $(ARGS)

collision: setup ## eight writers on the same keys, killed at random; the same with peers; 10 minutes
	@$(ENVIRONMENT) run demo -- -m demos.collision $(ARGS)

# Engines and clusters of processes need both cores for themselves; all other tests run two files at a time.
ALONE := tests/spark tests/flink tests/demos tests/multiprocess tests/chaos
# Every second one is run by `make test`; `make test ALONE_SAMPLE=1/1` runs all.
ALONE_SAMPLE ?= 1/2
# Jobs of Flink that are killed take minutes: `make chaos` runs them.
KILLS := tests/chaos/test_flink_kills.py
# Searches: seeds, crash points, seeded bugs, exhaustive models, damaged files. `make test` runs one in six, `.ci/run` one in
# four, `make deep` all.
DEEP := tests/sim tests/crash tests/fuzz tests/model
DEEP_SAMPLE ?= 1/6
# They need a browser, or engines of their own: `make ui`, `make engines`.
OTHERS := tests --ignore=tests/interop --ignore=tests/stores --ignore=tests/browser --ignore=tests/engines $(ALONE:%=--ignore=%) $(DEEP:%=--ignore=%)
TWO := -n 2 --dist loadfile

# Suites whose tables may lie on any store. A sample is one test in so many, the same ones every time.
ON_STORES := $(addprefix tests/,services readers indexing vectors storage metadata layout bad_input cli)
SAMPLE ?= 1/24

test: setup-dev ## tests that need no Java Hudi and no other versions; of engines and searches a sample; 15 minutes
	@failed=0; $(ENVIRONMENT) run dev -- -m pytest $(OTHERS) $(TWO) -q $(ARGS) || [ $$? = 5 ] || failed=1; \
	$(ENVIRONMENT) run dev -- -m pytest $(DEEP) --sample $(DEEP_SAMPLE) $(TWO) -q $(ARGS) || [ $$? = 5 ] || failed=1; \
	$(ENVIRONMENT) run dev -- -m pytest tests/writers --store objects $(TWO) -q $(ARGS) || [ $$? = 5 ] || failed=1; \
	for store in memory renames; do $(ENVIRONMENT) run dev -- -m pytest tests/writers $(ON_STORES) --store $$store \
	--sample $(SAMPLE) $(TWO) -q $(ARGS) || [ $$? = 5 ] || failed=1; done; \
	$(ENVIRONMENT) run dev -- -m pytest $(ALONE) --ignore=$(KILLS) --sample $(ALONE_SAMPLE) -q $(ARGS) || [ $$? = 5 ] || failed=1; exit $$failed

deep: setup-dev ## all searches: seeds, crash points, seeded bugs, models; make test runs one in six; 14 minutes
	@$(ENVIRONMENT) run dev -- -m pytest $(DEEP) $(TWO) -q $(ARGS)

# Of these `.ci/run` runs a sample.
VERSIONS_SAMPLE ?= 1/1
STORES_SAMPLE ?= 1/1
INTEROP_SAMPLE ?= 1/1
KILLS_SAMPLE ?= 1/1

# Left out: what no version can change (models, simulation, processes) and most of the slow tests.
VERSIONED := tests --ignore=tests/interop --ignore=tests/stores --ignore=tests/browser --ignore=tests/engines --ignore=tests/chaos --ignore=tests/model --ignore=tests/sim \
	--ignore=tests/multiprocess -m "versions or not slow" $(TWO) -q
# Where .venv has Flink, it has the oldest Spark and pyarrow too (scripts/environment.py), and `make test` runs
# with them. Python 3.13 and newer have no Flink, .venv has the newest of all there, and the oldest are run here.
OLDEST := $(shell $(PYTHON) -c 'import sys; print("oldest" * (sys.version_info >= (3, 13)))')

versions: ## the tests that depend on versions, with the newest Spark and pyarrow; 6 minutes
	@$(ENVIRONMENT) install newest $(OLDEST) dist
	@failed=0; for group in newest $(OLDEST); do \
	$(ENVIRONMENT) run $$group -- -m pytest $(VERSIONED) --sample $(VERSIONS_SAMPLE) $(ARGS) || failed=1; done; \
	exit $$failed

interop: setup-dev ## Java Hudi 1.2.0 reads and writes beside us; 20 minutes
	@$(ENVIRONMENT) install interop
	@$(ENVIRONMENT) run dev -- -m pytest tests/interop --sample $(INTEROP_SAMPLE) $(TWO) -q $(ARGS)

ui: ## the page of mainstem ui in Chromium, which is installed if there is none; a minute
	@$(PYTHON) scripts/browser.py
	@$(ENVIRONMENT) install ui
	@$(ENVIRONMENT) run ui -- -m pytest tests/browser -q $(ARGS)

engines: ## Ray, Daft, Dask, dbt, Dagster and Airflow read and write tables, workers are killed; three minutes
	@$(ENVIRONMENT) install engines
	@$(ENVIRONMENT) run engines -- -m pytest tests/engines -q $(ARGS)

# Tests that failed, once more, each alone: .ci/run names them. PART is the target of which they are.
again:
	@failed=0; for group in $(if $(filter versions,$(PART)),newest $(OLDEST),$(if $(filter ui engines,$(PART)),$(PART),dev)); do \
	$(ENVIRONMENT) run $$group -- -m pytest -q $(ARGS) || failed=1; done; exit $$failed

SERVER_SAMPLE ?= 1/24
MOTO := tests/stores/test_dynamodb_lock.py tests/stores/test_glue_catalog.py
servers: ## build or fetch the servers that make stores needs; 7 minutes, once
	@$(PYTHON) scripts/stores.py

stores: setup-dev servers ## object stores and HDFS: real servers are installed, and tables live on them; 20 minutes
	@$(ENVIRONMENT) install moto
	@failed=0; $(ENVIRONMENT) run dev -- -m pytest tests/stores $(MOTO:%=--ignore=%) \
	--sample $(STORES_SAMPLE) -q $(ARGS) || failed=1; \
	$(ENVIRONMENT) run moto -- -m pytest $(MOTO) tests/storage/test_aws_credentials.py -q $(ARGS) || failed=1; \
	for store in minio hdfs; do $(ENVIRONMENT) run dev -- -m pytest tests/writers $(ON_STORES) --store $$store \
	--sample $(SERVER_SAMPLE) $(TWO) -q $(ARGS) || [ $$? = 5 ] || failed=1; done; exit $$failed

# More processes than cores: they wait for their server.
STORES ?= minio hdfs
stores-suites: setup-dev servers ## the suites whole on STORES="minio hdfs" (versitygw azurite fake-gcs, too); an hour each
	@failed=0; for store in $(STORES); do \
	$(ENVIRONMENT) run dev -- -m pytest tests/writers $(ON_STORES) --store $$store -n 6 --dist loadfile --timeout 1800 \
	-q $(ARGS) || failed=1; \
	done; exit $$failed

interop-matrix: setup-dev ## every cell of the interop matrix, resumed where it was stopped; docs/interop.md
	@$(ENVIRONMENT) install interop
	@$(ENVIRONMENT) run dev -- -m tests.interop.matrix --all $(ARGS)

support: ## docs/support.md, made of the tests that pass; an hour
	@$(MAKE) --no-print-directory test ARGS="--support-report docs/support.json"
	@$(MAKE) --no-print-directory engines ARGS="--support-report docs/support.json"
	@$(MAKE) --no-print-directory versions ARGS="--support-report docs/support.json"
	@$(MAKE) --no-print-directory interop ARGS="--support-report docs/support.json"
	@$(MAKE) --no-print-directory stores ARGS="--support-report docs/support.json"
	@$(ENVIRONMENT) run dev -- scripts/support_table.py

benchmark: ## the reduced benchmarks; 20 minutes
	@$(ENVIRONMENT) install dev benchmarks interop lance
	@$(ENVIRONMENT) run benchmarks -- -m benchmarks $(ARGS)

benchmark-full: ## the benchmarks at full size
	@$(ENVIRONMENT) install dev benchmarks interop lance
	@$(ENVIRONMENT) run benchmarks -- -m benchmarks --full $(ARGS)

sim: setup-dev ## the simulated world for SECONDS=600, from SEED= if given (a failing seed replays exactly)
	@$(ENVIRONMENT) run dev -- -m tests.sim.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

sim-reach: setup-dev ## lines, branches and pairs of actions that the simulated world meets in SECONDS=600, from SEED= if given
	@$(ENVIRONMENT) run dev -- -W ignore -m tests.sim.reach --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos: SECONDS = 3600
chaos: setup-dev ## everybody on one table under a failing ZooKeeper ensemble for SECONDS=3600, from SEED= if given; then Flink jobs killed, streaming reads too
	@failed=0; $(ENVIRONMENT) run dev -- -m tests.chaos.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS) || failed=1; \
	FLINK_KILLS_SECONDS=$$(($(SECONDS) > 1200 ? $(SECONDS) / 100 : 12)) \
	$(ENVIRONMENT) run dev -- -m pytest -q --at-once --sample $(KILLS_SAMPLE) $(KILLS) || [ $$? = 5 ] || failed=1; \
	$(ENVIRONMENT) run dev -- -m tests.chaos.stream_read --seconds $$(($(SECONDS) > 1200 ? $(SECONDS) / 6 : 75)) \
	$(if $(SEED),--seed $(SEED)) || failed=1; exit $$failed

chaos-store: setup-dev servers ## everybody on one table in MinIO, which is killed and stopped behind a failing network, for SECONDS=600, from SEED= if given
	@$(ENVIRONMENT) run dev -- -m tests.chaos.run --store minio --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

crash: setup-dev ## every action killed at every step, on a disk and at every request of a store, and interrupted at every call; 75 minutes
	@$(ENVIRONMENT) run dev -- -m tests.crash.crash_matrix $(if $(SEED),--seed $(SEED)) $(ARGS)
	@$(ENVIRONMENT) run dev -- -m tests.crash.crash_matrix --store objects --roles 2 $(if $(SEED),--seed $(SEED)) $(ARGS)
	@$(ENVIRONMENT) run dev -- -m tests.crash.crash_matrix --store shared --roles 1 $(if $(SEED),--seed $(SEED)) $(ARGS)
	@$(ENVIRONMENT) run dev -- -m tests.crash.crash_matrix --store renames --roles 1 $(if $(SEED),--seed $(SEED)) $(ARGS)
	@$(ENVIRONMENT) run dev -- -m tests.crash.vector_matrix
	@$(ENVIRONMENT) run dev -- -m tests.crash.vector_matrix --store objects
	@CRASH_EVERY=1 $(ENVIRONMENT) run dev -- -m pytest tests/crash/test_crash_in_stores.py -k "creator or committer" -q
	@$(ENVIRONMENT) run dev -- -m tests.crash.interrupt_matrix $(if $(SEED),--seed $(SEED))
	@$(ENVIRONMENT) run dev -- -m tests.crash.interrupted_writers $(if $(SEED),$(SEED),1) 20 30 40

fuzz: setup-dev ## damaged files for every parser and histories of tables with hostile values, for SECONDS=600, from SEED= if given
	@$(ENVIRONMENT) run dev -- -m tests.fuzz.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz-filters: setup-dev ## filters on hostile values against a plain model, for SECONDS=600, from SEED= if given
	@$(ENVIRONMENT) run dev -- -m tests.fuzz.filters.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: setup-dev ## ruff, and mypy over the package: strict for the rooms that pyproject.toml names
	@failed=0; $(ENVIRONMENT) run dev -- -m ruff check . || failed=1; \
	$(ENVIRONMENT) run dev -- -m mypy || failed=1; exit $$failed

# The theme's word about versions of mkdocs to come is no warning of ours.
docs: export NO_MKDOCS_2_WARNING = 1
docs: ## build site/, the documentation site; open site/index.html; needs no Java
	@$(ENVIRONMENT) install docs
	@$(ENVIRONMENT) run docs -- -m mkdocs build --strict --quiet $(ARGS)

dist: ## build dist/, the sdist and the wheel; needs no Java
	@$(ENVIRONMENT) install dist
	@rm -rf dist
	@$(ENVIRONMENT) run dist -- -m build --no-isolation

clean: ## remove what builds and tests leave behind (the environments stay: rm -r .venv*)
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find mainstem tests demos benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +
