# Two commands matter: `make demo` and `make test`. Each sets up all it needs.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo $(VENV)/uv/bin/uv)
RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
export SPARK_LOCAL_IP := 127.0.0.1
# Set in many containers. Then each of the thousand processes that tests start compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test tools checks parts lint python-lint rust-lint types layers rust-test python-test test-everything bench baseline before-after history faults soak compat docs audit screenshots lock clean setup jars apt browser pooler java

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

demo: java setup  ## a PySpark pipeline, end to end, on the embedded default
	@$(BIN)/python examples/pipeline/run.py

test: parts checks python-test  ## everything CI checks

# Said before minutes are spent on the rest.
NEED_CARGO = command -v cargo >/dev/null || { echo "cargo (Rust 1.85 or newer) is needed to build the core: install it with rustup (docs/troubleshooting.md\#setting-up)"; exit 1; }
NEED_JAVA = command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || { echo "Java 17 is needed for Spark: install a JDK, for example openjdk-17-jre-headless, or set JAVA_HOME (docs/troubleshooting.md\#spark)"; exit 1; }

java:
	@$(NEED_JAVA)

tools:
	@$(NEED_CARGO)
	@$(NEED_JAVA)
	@command -v mvn >/dev/null || { echo "Maven is needed to fetch delta-spark for the tests: install it, for example the package maven"; exit 1; }

# What does not wait for each other goes side by side: downloads beside compilers first.
parts: tools
	@$(MAKE) --no-print-directory -j 3 -O setup jars apt rust-lint rust-test

checks: parts
	@$(MAKE) --no-print-directory -j 2 -O python-lint types layers

setup: $(VENV)/.built  ## environment in .venv and the Rust core in it

lint: python-lint rust-lint  ## ruff, rustfmt, clippy (warnings are errors)

python-lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

rust-lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

types: setup  ## mypy strict, and the extension's stub against the extension
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest deltasql._core --concise

layers: setup  ## nothing imports upward
	$(BIN)/lint-imports

rust-test:  ## tests of the pure Rust core
	cargo test --quiet -p deltasql-core

# delta-spark is one of the readers that the tests ask about the mirror.
JARS := build/jars
DELTA_SPARK := io.delta:delta-spark_4.2_2.13:4.4.0 io.delta:delta-storage:4.4.0

$(JARS)/.fetched: | tools
	@mkdir -p $(JARS)
	@for jar in $(DELTA_SPARK); do mvn --quiet --batch-mode dependency:copy -Dartifact=$$jar -DoutputDirectory=$(CURDIR)/$(JARS) || exit 1; done
	@touch $@

# Hadoop's S3 client, for the tests of Spark on S3.
$(JARS)/s3/.fetched: tests/spark/jars/pom.xml $(JARS)/.fetched
	@mvn --quiet --batch-mode -f $< dependency:copy-dependencies -DincludeScope=runtime \
	  -DexcludeGroupIds=io.netty,org.slf4j,commons-codec,commons-logging,org.apache.httpcomponents,org.wildfly.openssl \
	  -DoutputDirectory=$(CURDIR)/$(JARS)/s3
	@touch $@

jars: $(JARS)/.fetched $(JARS)/s3/.fetched  ## jars that tests need, in build/jars

# One after the other: apt-get serves one caller at a time.
apt:
	@$(MAKE) --no-print-directory browser
	@$(MAKE) --no-print-directory pooler

# The console is tested in a real browser. Where nobody may install it, those tests are left out.
browser:  ## Chromium, installed if it is missing and this user may
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 120 apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "Chromium is missing: install the package chromium to have the console tested in a browser"

# PostgreSQL is tested behind a real PgBouncer. Where nobody may install it, those tests are left out.
pooler:  ## PgBouncer, installed if it is missing and this user may
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 120 apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends pgbouncer >/dev/null; } \
	  || echo "PgBouncer is missing: install the package pgbouncer to have PostgreSQL tested behind it"

# Two processes for two cores, and one more for the time that tests spend waiting for disks and servers.
# Which tests are left to test-everything: tests/selection.py, and the table at the end.
python-test: tools setup jars browser pooler  ## Python tests, with an embedded PostgreSQL
	$(BIN)/python tests/server.py $(BIN)/pytest -q -n 3 --dist loadgroup --durations 25

test-everything: setup jars browser pooler  ## every Python test on every database, with what `make test` leaves out (over an hour)
	DELTASQL_EVERYTHING=1 $(BIN)/python tests/server.py $(BIN)/pytest -q -n 2 --dist loadgroup --durations 25

bench: setup jars  ## benchmarks beside deltalake, DuckLake, delta-spark and the bare-SQL floor
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.profiles
	$(BIN)/python docs/build.py

baseline: setup  ## the wheel of 0.1.0, built outside this folder, for figures "before" and "after"
	$(BIN)/python -m benchmarks.baseline

before-after: setup jars  ## this tree beside 0.1.0, deltalake, DuckLake and bare SQL, in one run
	$(BIN)/python -m benchmarks.before_after

history: setup  ## an hour of many clients at once, and a proof that one order explains what each saw
	$(BIN)/python tests/server.py $(BIN)/python -m tests.history --minutes 60

faults: setup  ## every fault at every step of a commit, on every database, and its page (about half an hour)
	$(BIN)/python tests/server.py $(BIN)/python -m tests.faults
	$(BIN)/python docs/build.py

soak: setup  ## 16 writers, 4 readers, reconciler, optimize and vacuum at once: ten minutes on PostgreSQL, ten on SQLite
	$(BIN)/python tests/server.py $(BIN)/python -m tests.soak --minutes 10
	$(BIN)/python docs/build.py

compat: setup  ## what other releases of deltalake make of our tables, and we of theirs
	$(BIN)/python -m tests.compat

screenshots: setup  ## pictures of the console, made anew with Chromium
	$(BIN)/python docs/screenshots.py

docs: setup  ## the site in site/: pages and pictures from the code, links checked, warnings are errors
	$(BIN)/python docs/build.py --site

audit:  ## known weaknesses of dependencies, where the advisory databases can be reached
	@mkdir -p build; $(UV) tool run --quiet pip-audit --disable-pip --require-hashes -r requirements.lock >build/audit-python.txt 2>&1; code=$$?; \
	  if grep -q "could not be audited" build/audit-python.txt || { [ $$code -ne 0 ] && ! grep -q "^Found" build/audit-python.txt; }; \
	  then echo "Python: not audited, the advisory database cannot be reached from here (build/audit-python.txt)"; \
	  else cat build/audit-python.txt; exit $$code; fi
	@if ! cargo audit --version >/dev/null 2>&1; then echo "Rust: not audited, cargo-audit is missing: cargo install cargo-audit"; \
	  elif cargo audit >build/audit-rust.txt 2>&1; then cat build/audit-rust.txt; \
	  elif grep -q "Crate:" build/audit-rust.txt; then cat build/audit-rust.txt; exit 1; \
	  else echo "Rust: not audited, the advisory database cannot be reached from here (build/audit-rust.txt)"; fi

lock:  ## resolve requirements.lock anew
	$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-emit-index-url -q -o requirements.lock

clean:  ## remove everything that was built
	rm -rf $(VENV) target build dist site python/deltasql/*.so

$(VENV)/.env: requirements.lock
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: install it and set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; $(PYTHON) is older: set PYTHON=/path/to/python3.11"; exit 1; }
	@$(NEED_CARGO)
	@command -v $(UV) >/dev/null || { $(PYTHON) -m venv $(VENV)/uv && $(VENV)/uv/bin/pip install --quiet 'uv>=0.5'; }
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --python $(BIN)/python requirements.lock
	@touch $@

$(VENV)/.built: $(VENV)/.env pyproject.toml $(RUST_SOURCES)
	@$(NEED_CARGO)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) PATH="$(CURDIR)/$(BIN):$$PATH" $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --reinstall-package deltasql -e .
	@touch $@
