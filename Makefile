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
ROOMS     ?= privacy
ROOM      ?= 1
# a process of tests for each core, four at most
PYTEST    := $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4

.DEFAULT_GOAL := help
.PHONY: help demo test true docs notebooks check lines test-web test-full test-newest test-oldest trust trust-full mutants bench-quality bench-both bench-public never-loses bench-new-items bench-year bench-implicit frontier bench-scale bench-speed bench-first-use bench-serve bench-nobody reproduce-frank-wolfe reproduce-one-bit reproduce-homomorphic dist dist-check clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(VENV)/.run ## train, judge and use a private model, on RATINGS=… CATALOGUE=… if given; sets everything up
	@$(BIN)/python -m benchmarks.demo --epsilon $(EPSILON) --delta $(DELTA) --rating-range $(RANGE) \
	    $(if $(RATINGS),--ratings "$(RATINGS)" --catalogue "$(CATALOGUE)" --dataset "$(DATASET)") \
	    $(if $(COLUMNS),--columns "$(COLUMNS)")

test: check ## style, types, who may import whom, and all tests; sets everything up
	$(PYTEST)

true: $(VENV)/.test ## follow what the product says and see whether it comes true; 5 minutes
	$(BIN)/python -m benchmarks.true

docs: $(VENV)/.docs ## the site, in build/site; its start pages are run as it is built
	$(BIN)/python -m sphinx -b html --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site
	@echo "wrote build/site/index.html"

notebooks: $(VENV)/.docs ## the site with its notebooks run
	HUSHREC_NOTEBOOKS=1 $(BIN)/python -m sphinx -b html --fail-on-warning --keep-going --quiet -d build/doctrees-notebooks docs build/site
	@echo "wrote build/site/understand/notebooks/index.html"

check: $(VENV)/.test ## style, types, who may import whom, and the bounds on lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.lines --check

lines: $(VENV)/.test ## lines of code by room
	$(BIN)/python -m benchmarks.lines

test-web: ## the browser's client and the demo page, in headless Chromium; ROOM=3 allows so many times the targets of time
	@ROOM=$(ROOM) bash web/test.sh

test-full: $(VENV)/.test ## all tests, the long ones too
	$(PYTEST) -m "full or not full"

test-newest: $(VENV)/.test ## tests with the newest releases of all dependencies; TESTS=path runs a part
	$(BIN)/python -m benchmarks.dependencies newest $(TESTS)

test-oldest: $(VENV)/.test ## tests with the oldest releases that pyproject.toml allows
	$(BIN)/python -m benchmarks.dependencies oldest $(TESTS)

trust: $(VENV)/.test ## every property behind the guarantee with its figure; 5 minutes
	$(BIN)/python -m benchmarks.trust

trust-full: $(VENV)/.test ## the same with the long tests, hours; writes docs/data/trust.json; LONG=--continue goes on where it was cut off
	$(BIN)/python -m benchmarks.trust --full --write $(LONG)

mutants: $(VENV)/.test ## planted privacy bugs and the tests that kill them, then MUTANTS sampled ones of ROOMS
	$(PYTEST) -m "full or not full" tests/mutants
	$(BIN)/python -m benchmarks.mutate $(MUTANTS) --rooms $(ROOMS)

bench-quality: $(VENV)/.test ## RMSE on MovieLens-1M at each epsilon; HUSHREC_DATA names the folder of real ratings
	$(BIN)/python -m benchmarks.bench_quality

bench-both: $(VENV)/.bench ## one model for both jobs against two
	$(BIN)/python -m benchmarks.bench_both

bench-public: $(VENV)/.test ## public ratings of a few users beside a private model; HUSHREC_DATA names the folder of real ratings
	$(BIN)/python -m benchmarks.bench_public
	$(BIN)/python -m benchmarks.public_cells
	$(BIN)/python -m benchmarks.lifelike
	$(BIN)/python -m benchmarks.forecasts --part sample

never-loses: $(VENV)/.test ## private ALS against item biases and users' means, real tables and 40 generated corners; half an hour
	$(BIN)/python -m benchmarks.never_loses

bench-new-items: $(VENV)/.test ## what features tell of films that nobody has rated; needs HUSHREC_DATA, 1 minute
	$(BIN)/python -m benchmarks.bench_new_items

bench-year: $(VENV)/.test ## a year of weekly models for one budget, 15 minutes; LONG=--long takes five draws
	$(BIN)/python -m benchmarks.bench_year $(LONG)

bench-implicit: $(VENV)/.bench ## lists from likes
	$(BIN)/python -m benchmarks.bench_implicit

frontier: $(VENV)/.test ## every method at its true epsilon; LONG=--long takes all epsilons and five draws, hours
	$(BIN)/python -m benchmarks.frontier $(LONG)

bench-scale: $(VENV)/.test ## a store of 1e8 ratings, and Dask on one of 1e7; LONG=--long adds 1e9, hours and 40 GB of disk
	$(BIN)/python -m benchmarks.bench_scale $(LONG); scale=$$?; \
	$(BIN)/python -m benchmarks.bench_dask $(LONG) && exit $$scale

bench-speed: $(VENV)/.bench ## a sweep against implicit's
	$(BIN)/python -m benchmarks.bench_speed --peers
	$(BIN)/python -m benchmarks.bench_exact

bench-first-use: $(VENV)/.run ## seconds from a cold kernel cache to the first model
	$(BIN)/python -m benchmarks.bench_first_use

bench-serve: $(VENV)/.test ## lists a second, waits and memory of the server; six minutes
	$(BIN)/python -m benchmarks.bench_serve

bench-nobody: $(VENV)/.test ## two servers: quality in few rounds, cost of a device, kills and lies; 15 minutes; HUSHREC_DATA as above
	$(BIN)/python -m benchmarks.bench_nobody; short=$$?; \
	$(PYTEST) -m "full or not full" tests/engines/test_two_servers.py && exit $$short

reproduce-frank-wolfe: $(VENV)/.test ## the figures of Jain, Thakkar and Thakurta 2018; LONG=--long takes the paper's sizes
	$(BIN)/python -m benchmarks.reproduce_frank_wolfe $(LONG)

reproduce-one-bit: $(VENV)/.test ## the figures of Li et al. 2021
	$(BIN)/python -m benchmarks.reproduce_one_bit --figures docs/figures

reproduce-homomorphic: $(VENV)/.test ## the figures of Liu, Li and Wang 2022; RATINGS=ml-1m.parquet adds the real ratings
	-$(BIN)/python -m pip install --quiet fancyimpute  # the peer, with scikit-learn and cvxpy
	$(BIN)/python -m benchmarks.reproduce_homomorphic --out docs/figures $(LONG) $(if $(RATINGS),--movielens "$(RATINGS)")

dist: $(VENV)/.release ## wheel and source archive of the last commit in dist/, built twice and compared
	$(BIN)/python -m benchmarks.dist

dist-check: $(VENV)/.release ## the README's lines with the wheel alone
	$(BIN)/python -m benchmarks.dist check

clean: ## remove everything that make made
	rm -rf $(VENV) build demo-output *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

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
