# Everything happens in one virtual environment, .venv, made by plain pip.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# make demo RATINGS=path CATALOGUE=path RANGE="1 5" runs the main job on your own file: one model, charged to DATASET in
# your account's ledger; COLUMNS=user=uid,item=movie,rating=stars names the columns
RATINGS   ?=
CATALOGUE ?=
RANGE     ?= 1 5
COLUMNS   ?=
DATASET   ?= my ratings
EPSILON   ?= 5
DELTA     ?= 1e-6
TESTS     ?= tests
MUTANTS   ?= 60
ROOM      ?= 1
# a process of tests for each core, four at most
PYTEST    := $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4

.PHONY: demo test check lines test-web test-full test-newest test-oldest trust trust-full mutants bench-quality bench-both bench-year never-loses bench-implicit frontier bench-scale bench-speed bench-first-use bench-serve reproduce-frank-wolfe reproduce-one-bit reproduce-homomorphic docs notebooks dist dist-check clean

demo: $(VENV)/.run
	@$(BIN)/python -m benchmarks.demo --epsilon $(EPSILON) --delta $(DELTA) --rating-range $(RANGE) \
	    $(if $(RATINGS),--ratings "$(RATINGS)" --catalogue "$(CATALOGUE)" --dataset "$(DATASET)") \
	    $(if $(COLUMNS),--columns "$(COLUMNS)")

test: check
	$(PYTEST)

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.lines --check

# lines of code by room
lines: $(VENV)/.test
	$(BIN)/python -m benchmarks.lines

# the browser's client and the demo page, in headless Chromium; ROOM=3 allows so many times the targets of time
test-web:
	@ROOM=$(ROOM) bash web/test.sh

test-full: $(VENV)/.test
	$(PYTEST) -m "full or not full"

# the newest releases of all dependencies, and the oldest that pyproject.toml allows; TESTS=path runs a part
test-newest: $(VENV)/.test
	$(BIN)/python -m benchmarks.dependencies newest $(TESTS)

test-oldest: $(VENV)/.test
	$(BIN)/python -m benchmarks.dependencies oldest $(TESTS)

# every property behind the guarantee with its figure; about 5 minutes
trust: $(VENV)/.test
	$(BIN)/python -m benchmarks.trust

# with the long tests and the newest releases, hours; writes docs/trust.md; LONG=--continue goes on where it was cut off
trust-full: $(VENV)/.test
	$(BIN)/python -m benchmarks.trust --full --write $(LONG)

# 60 sampled mutants of the committed code, three minutes after a quarter of an hour that records, once a commit,
# which test runs which line; MUTANTS=1000 is the long form, an hour more, and goes on where it was cut off
mutants: $(VENV)/.test
	$(BIN)/python -m tests.mutants.driver $(MUTANTS)

bench-quality: $(VENV)/.test
	$(BIN)/python -m benchmarks.bench_quality

bench-both: $(VENV)/.bench
	$(BIN)/python -m benchmarks.bench_both

# private ALS against item biases and users' means on real tables and 40 generated corners, half an hour
never-loses: $(VENV)/.test
	$(BIN)/python -m benchmarks.never_loses

# a year of weekly models for one budget, 15 minutes; LONG=--long takes five draws and judges every week
bench-year: $(VENV)/.test
	$(BIN)/python -m benchmarks.bench_year $(LONG)

bench-implicit: $(VENV)/.bench
	$(BIN)/python -m benchmarks.bench_implicit

# every method at its true epsilon; LONG=--long takes all epsilons and five draws, hours
frontier: $(VENV)/.test
	$(BIN)/python -m benchmarks.frontier $(LONG)

# a store of 1e8 ratings, and Dask on one of 1e7; LONG=--long adds 1e9 and more kills, hours and 40 GB of disk
bench-scale: $(VENV)/.test
	$(BIN)/python -m benchmarks.bench_scale $(LONG); scale=$$?; \
	$(BIN)/python -m benchmarks.bench_dask $(LONG) && exit $$scale

bench-speed: $(VENV)/.bench
	$(BIN)/python -m benchmarks.bench_speed --peers
	$(BIN)/python -m benchmarks.bench_exact

# seconds from a cold kernel cache to the first model
bench-first-use: $(VENV)/.run
	$(BIN)/python -m benchmarks.bench_first_use

# lists a second, waits, memory and exchanges of the model, on this machine alone; about six minutes
bench-serve: $(VENV)/.test
	$(BIN)/python -m benchmarks.bench_serve

# LONG=--long takes the paper's sizes; HUSHREC_DATA names the folder of real ratings
reproduce-frank-wolfe: $(VENV)/.test
	$(BIN)/python -m benchmarks.reproduce_frank_wolfe $(LONG)

# with RATINGS=ml-1m.parquet the real ratings too; LONG=--long for 1,000 x 1,000
reproduce-homomorphic: $(VENV)/.test
	-$(BIN)/python -m pip install --quiet fancyimpute  # the peer, with scikit-learn and cvxpy
	$(BIN)/python -m benchmarks.reproduce_homomorphic --out docs/figures $(LONG) $(if $(RATINGS),--movielens "$(RATINGS)")

reproduce-one-bit: $(VENV)/.test
	$(BIN)/python -m benchmarks.reproduce_one_bit --figures docs/figures

# the site, in build/site; its start pages are run as it is built, and warnings are errors
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -b html --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site
	@echo "wrote build/site/index.html"

# the same with the notebooks run
notebooks: $(VENV)/.docs
	HUSHREC_NOTEBOOKS=1 $(BIN)/python -m sphinx -b html --fail-on-warning --keep-going --quiet -d build/doctrees-notebooks docs build/site
	@echo "wrote build/site/notebooks/index.html"

# wheel and source archive of the last commit in dist/, built twice and compared; then the README's lines with the wheel alone
dist: $(VENV)/.release
	$(BIN)/python -m benchmarks.dist

dist-check: $(VENV)/.release
	$(BIN)/python -m benchmarks.dist check

$(VENV)/.run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e ".[plot]"
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/python -m pip install --quiet -e ".[test]"
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	@touch $@

$(VENV)/.release: $(VENV)/.run
	$(BIN)/python -m pip install --quiet -e ".[release]"
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet -e ".[bench]"
	-$(BIN)/python -m pip install --quiet cmfrec
	@touch $@

clean:
	rm -rf $(VENV) build demo-output *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
