# The main commands are `make demo` and `make test`. Each sets up everything that it needs.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo $(VENV)/uv/bin/uv)
RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
# The packages in .venv: .env for all of them, .demo for those of the demo.
ENVIRONMENT := .env
export SPARK_LOCAL_IP := 127.0.0.1
# Many containers set this. Then each of the thousand processes of the tests compiles all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help editor demo core test tools checks collect lint python-lint rust-lint types layers rust-test python-test test-everything test-matrix bench baseline before-after bench-quick serializability faults soak compat docs audit screenshots lock clean setup jars jar wheel apt browser pooler java

help:  ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

demo: java  ## Run a PySpark pipeline on SQLite; installs only what it needs
	@$(NEED_CARGO)
	@echo "1 of 3: download the packages and compile the Rust core, at the same time (next: install deltasql, run the pipeline)"
	@$(MAKE) --no-print-directory --silent -j 2 $(VENV)/.demo core
	@echo "2 of 3: install deltasql into .venv (next: run the pipeline)"
	@$(MAKE) --no-print-directory --silent ENVIRONMENT=.demo $(VENV)/.built
	@echo "3 of 3: run the pipeline"
	@$(BIN)/python examples/pipeline/run.py

test: checks python-test  ## Run all checks and tests of CI

# These are checked before steps that take minutes.
NEED_CARGO = command -v cargo >/dev/null || { echo "cargo (Rust 1.85 or newer) is needed to build the core: install it with rustup (docs/troubleshooting.md\#setting-up)"; exit 1; }
NEED_JAVA = command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || { echo "Java 17 is needed for Spark: install a JDK, for example openjdk-17-jre-headless, or set JAVA_HOME (docs/troubleshooting.md\#spark)"; exit 1; }
NEED_JAVAC = command -v javac >/dev/null || { echo "javac is needed to build the jar of the Spark catalog: install a JDK, for example openjdk-17-jdk-headless"; exit 1; }
NEED_MAVEN = command -v mvn >/dev/null || { echo "Maven is needed to fetch delta-spark, for the jar and for the tests: install it, for example the package maven"; exit 1; }

java:
	@$(NEED_JAVA)

tools:
	@$(NEED_CARGO)
	@$(NEED_JAVA)
	@$(NEED_JAVAC)
	@$(NEED_MAVEN)

# Independent steps run in parallel, first downloads and compilers.
checks: tools
	@$(MAKE) --no-print-directory -j 3 -O setup jar jars apt rust-lint rust-test python-lint types layers collect

setup: $(VENV)/.built  ## Create the environment in .venv and build the Rust core

lint: python-lint rust-lint  ## Run ruff, rustfmt and clippy (warnings are errors)

python-lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

rust-lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

types: setup  ## Run mypy in strict mode, and compare the stub of the extension with the extension
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest deltasql._core --concise --mypy-config-file tests/stubtest.ini

# Each test process would spend half a minute on this, all of them at the same time.
collect: setup jars
	@TEST_DATABASE_URL=unused $(BIN)/pytest -q --collect-only >build/collected.txt || { tail -50 build/collected.txt; exit 1; }

layers: setup  ## Check that no module imports from a higher layer
	$(BIN)/lint-imports

rust-test:  ## Run the tests of the Rust core
	cargo test --quiet -p deltasql-core --lib --tests

# delta-spark is one of the readers with which the tests read the mirror. The jar is compiled against its LogStore.
JARS := build/jars
DELTA_SPARK := io.delta:delta-spark_4.2_2.13:4.4.0 io.delta:delta-storage:4.4.0

$(JARS)/.fetched:
	@$(NEED_MAVEN)
	@mkdir -p $(JARS)
	@for jar in $(DELTA_SPARK); do mvn --quiet --batch-mode dependency:copy -Dartifact=$$jar -DoutputDirectory=$(CURDIR)/$(JARS) || exit 1; done
	@touch $@

# Hadoop's S3 client, for the tests of Spark on S3.
$(JARS)/s3/.fetched: tests/spark/jars/pom.xml $(JARS)/.fetched
	@mvn --quiet --batch-mode -f $< dependency:copy-dependencies -DincludeScope=runtime \
	  -DexcludeGroupIds=io.netty,org.slf4j,commons-codec,commons-logging,org.apache.httpcomponents,org.wildfly.openssl \
	  -DoutputDirectory=$(CURDIR)/$(JARS)/s3
	@touch $@

# Delta's Java kernel, another reader and writer of the published log.
KERNEL := io.delta:delta-kernel-api:4.4.0 io.delta:delta-kernel-defaults:4.4.0

$(JARS)/kernel/.fetched: $(JARS)/.fetched
	@mkdir -p $(JARS)/kernel
	@for jar in $(KERNEL); do mvn --quiet --batch-mode dependency:copy -Dartifact=$$jar -DoutputDirectory=$(CURDIR)/$(JARS)/kernel || exit 1; done
	@touch $@

jars: $(JARS)/.fetched $(JARS)/s3/.fetched $(JARS)/kernel/.fetched  ## Download the jars of the tests to build/jars

# The Spark catalog and the LogStore, compiled against the jars inside the pyspark wheel and delta-storage. The wheel of deltasql
# contains the jar.
JAR := python/deltasql/spark/deltasql-spark.jar
JAVA_SOURCES := $(wildcard jvm/src/io/deltasql/spark/*.java) python/deltasql/engine/spark/SnapshotFiles.java

jar: $(JAR)  ## Build the jar of the Spark catalog

$(JAR): $(JAVA_SOURCES) $(VENV)/$(ENVIRONMENT) $(JARS)/.fetched
	@$(NEED_JAVAC)
	@rm -rf build/jvm && mkdir -p build/jvm
	javac --release 17 -nowarn -Xlint:none -d build/jvm -cp "$$(echo $(VENV)/lib/python3*/site-packages/pyspark/jars)/*:$$(echo $(JARS)/delta-storage-*.jar)" $(JAVA_SOURCES)
	jar --create --file $@ --date 1980-01-01T00:00:02Z -C build/jvm .

# The pages for `deltasql docs` are removed afterwards: in a clone, the command prints those in docs/.
wheel: setup jar  ## Build an abi3 wheel and an sdist in dist/, both with the jar and the pages for `deltasql docs`
	@rm -rf dist
	$(BIN)/python -m docs.tools.pack
	$(BIN)/maturin sdist --out dist && $(BIN)/maturin build --release --out dist; code=$$?; rm -rf python/deltasql/pages; exit $$code

# In sequence, because only one apt-get can run at a time.
apt:
	@$(MAKE) --no-print-directory browser
	@$(MAKE) --no-print-directory pooler

# The console is tested in a real browser. Without one, those tests are skipped.
browser:  ## Install Chromium if it is missing and this user is root
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 120 apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "Chromium is missing: install the package chromium to have the console tested in a browser"

# PostgreSQL is tested behind a real PgBouncer. Without one, those tests are skipped.
pooler:  ## Install PgBouncer if it is missing and this user is root
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 120 apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends pgbouncer >/dev/null; } \
	  || echo "PgBouncer is missing: install the package pgbouncer to have PostgreSQL tested behind it"

# Two processes for two cores, and two more because tests wait for disks, servers and locks.
# tests/selection.py decides which tests run only in test-everything; a table at the end of a run lists them.
python-test: tools setup jar jars browser pooler  ## Run the Python tests, with an embedded PostgreSQL
	$(BIN)/python tests/server.py $(BIN)/pytest -q -n 4 --dist loadgroup --durations 25

test-everything: setup jar jars browser pooler  ## Run every Python test on every database, also those that `make test` skips (several hours)
	DELTASQL_EVERYTHING=1 $(BIN)/python tests/server.py $(BIN)/pytest -q -n 2 --dist loadgroup --durations 25
	$(MAKE) bench-quick

test-matrix: setup jar jars pooler  ## Run one behaviour suite with every supported database, store and engine (hours; finished cells are not run again)
	$(BIN)/python -m tests.matrix; code=$$?; $(BIN)/python docs/build.py; exit $$code

bench: setup jars  ## Run the benchmarks against deltalake, DuckLake, delta-spark and plain SQL
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.profiles
	$(BIN)/python docs/build.py

baseline: setup  ## Build the wheel of 0.1.0 outside this folder, for `make before-after`
	$(BIN)/python -m benchmarks.baseline

before-after: setup jars  ## Compare this tree with 0.1.0, deltalake, DuckLake and plain SQL in one run
	$(BIN)/python -m benchmarks.before_after

bench-quick: setup  ## Fail if commits or planning became slower than 0.1.0, or slower beside plain SQL than recorded (five minutes)
	$(BIN)/python -m benchmarks.guard

serializability: setup  ## Run many concurrent clients for an hour, and check that one serial order explains all their results
	$(BIN)/python tests/server.py $(BIN)/python -m tests.serializability --minutes 60

faults: setup  ## Inject every fault at every step of a commit on every database, and write the page (about half an hour)
	$(BIN)/python tests/server.py $(BIN)/python -m tests.faults
	$(BIN)/python docs/build.py

soak: setup  ## Run 16 writers, 4 readers, a reconciler, optimize and vacuum for ten minutes on PostgreSQL and on SQLite
	$(BIN)/python tests/server.py $(BIN)/python -m tests.soak --minutes 10
	$(BIN)/python docs/build.py

compat: java setup jar  ## Check that other releases of deltalake read and write our tables, deltasql theirs, and every release of PySpark
	$(BIN)/python -m tests.compat
	$(BIN)/python -m tests.spark.releases
	$(BIN)/python docs/build.py

editor:  ## Bundle the SQL editor of the console (needs npm); the result is checked in
	editor/build.sh

screenshots: setup  ## Take the screenshots of the console with Chromium
	$(BIN)/python docs/screenshots.py

docs: setup  ## Generate pages and plots, check links and build the documentation in site/ (warnings are errors)
	$(BIN)/python docs/build.py --site

audit:  ## Search the dependencies for known vulnerabilities, if the advisory databases can be reached
	@mkdir -p build; $(UV) tool run --quiet pip-audit --disable-pip --require-hashes -r requirements.lock >build/audit-python.txt 2>&1; code=$$?; \
	  if grep -q "could not be audited" build/audit-python.txt || { [ $$code -ne 0 ] && ! grep -q "^Found" build/audit-python.txt; }; \
	  then echo "Python: not audited, the advisory database cannot be reached from here (build/audit-python.txt)"; \
	  else cat build/audit-python.txt; exit $$code; fi
	@if ! cargo audit --version >/dev/null 2>&1; then echo "Rust: not audited, cargo-audit is missing: cargo install cargo-audit"; \
	  elif cargo audit >build/audit-rust.txt 2>&1; then cat build/audit-rust.txt; \
	  elif grep -q "Crate:" build/audit-rust.txt; then cat build/audit-rust.txt; exit 1; \
	  else echo "Rust: not audited, the advisory database cannot be reached from here (build/audit-rust.txt)"; fi

COMPILE = $(UV) pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url -q

# The demo has the versions of the full environment, so that both fit into one .venv.
lock: $(VENV)/.python  ## Resolve the dependencies and write requirements.lock and requirements-demo.lock
	$(COMPILE) --extra dev -o requirements.lock
	$(COMPILE) --extra demo --no-annotate --constraints requirements.lock -o requirements-demo.lock

clean:  ## Remove everything that was built
	rm -rf $(VENV) target build dist site python/deltasql/*.so $(JAR)

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: install it and set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; $(PYTHON) is older: set PYTHON=/path/to/python3.11"; exit 1; }
	@$(NEED_CARGO)
	@command -v $(UV) >/dev/null || { $(PYTHON) -m venv $(VENV)/uv && $(VENV)/uv/bin/pip install --quiet 'uv>=0.5'; }
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	@touch $@

# pyspark is published as source only. Its wheel contains jars, which are already compressed.
STORED := --config-settings=--build-option=--compression=stored

# All packages, for development.
$(VENV)/.env: requirements.lock | $(VENV)/.python
	$(UV) pip sync --quiet $(STORED) --python $(BIN)/python requirements.lock
	@touch $@

# The packages of the demo: a subset of those above, so nothing is removed from a full environment.
# The lock file is complete; without --no-deps, uv would build pyspark once more to read its dependencies.
$(VENV)/.demo: requirements-demo.lock | $(VENV)/.python
	$(UV) pip install --quiet $(STORED) --no-deps --python $(BIN)/python -r requirements-demo.lock
	@touch $@

$(VENV)/.built: $(VENV)/$(ENVIRONMENT) pyproject.toml $(RUST_SOURCES)
	@$(NEED_CARGO)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) PATH="$(CURDIR)/$(BIN):$$PATH" $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --reinstall-package deltasql -e .
	@touch $@

# Compiles the dependencies of the extension while packages are downloaded, with the features that maturin selects.
# maturin then compiles only pyo3 and the extension again, for the Python in .venv.
core:
	cargo build --quiet --release --package deltasql-py --features pyo3/extension-module
