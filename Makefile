# Everything happens in one virtual environment, .venv, made by plain pip.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# make demo RATINGS=path CATALOGUE=path RANGE="1 5" trains one model on your own file and charges it to DATASET in your
# account's ledger; COLUMNS=user=uid,item=movie,rating=stars names the columns
RATINGS      ?=
CATALOGUE    ?=
RANGE        ?= 1 5
COLUMNS      ?=
DATASET      ?= my ratings
EPSILON      ?= 5
DELTA        ?= 1e-6
# make test TESTS=tests/kernels runs a part; FULL=1 adds the long tests; DEPENDENCIES=newest (or oldest) installs those;
# SPARK=1 installs pyspark, which needs Java, and runs its test alone
TESTS        ?=
FULL         ?=
SPARK        ?=
DEPENDENCIES ?=
# versions of all packages; LOCK= takes the newest within the bounds
LOCK         ?= --constraint requirements-dev.lock
MUTANTS      ?= 60
ROOMS        ?= privacy
ROOM         ?= 1
# options of a benchmark, such as LONG=--long
LONG         ?=
# bytecode is kept: tests start hundreds of processes, each of which would compile the package
unexport PYTHONDONTWRITEBYTECODE
# a process of tests for each core, four at most; each with one BLAS thread, or idle ones would spin
PYTEST       := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=worksteal
# run modules of benchmarks/ in turn; fail at the end if any fails
EACH          = failed=0; for each in $(1); do echo "== $$each"; $(BIN)/python -m benchmarks.$(2)$$each $(LONG) || failed=1; done; exit $$failed

.DEFAULT_GOAL := help
.PHONY: help demo test check smoke test-web trust mutants docs bench frontier reproduce speed dist clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(VENV)/.run ## train, evaluate and use a private model, on RATINGS=… CATALOGUE=… if given; sets everything up
	@$(BIN)/python -m benchmarks.demo --epsilon $(EPSILON) --delta $(DELTA) --rating-range $(RANGE) \
	    $(if $(RATINGS),--ratings "$(RATINGS)" --catalogue "$(CATALOGUE)" --dataset "$(DATASET)") \
	    $(if $(COLUMNS),--columns "$(COLUMNS)")

test: check ## check, then all tests; FULL=1 adds the long ones; DEPENDENCIES=newest or oldest installs those first
	$(if $(SPARK),$(BIN)/python -m pip install --quiet "pyspark==4.*")
	$(if $(DEPENDENCIES),$(BIN)/python -m benchmarks.dependencies $(DEPENDENCIES) $(TESTS),$(PYTEST) $(if $(FULL),-m "full or not full") $(if $(SPARK),tests/integrations/test_spark.py,$(TESTS)))

check: $(VENV)/.test ## style, types, import contracts, line bounds, and whether every target has a smoke run
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.lines --check
	$(BIN)/python -m benchmarks.smoke --check

smoke: $(VENV)/.test $(VENV)/.release ## the code of every target at toy size; 3 minutes
	$(BIN)/python -m benchmarks.smoke

test-web: ## the browser's client and the demo page, in headless Chromium; ROOM=3 multiplies the time targets by 3
	@ROOM=$(ROOM) bash web/test.sh

trust: $(VENV)/.test ## properties behind the guarantee, and sentences the product says, 10 minutes; LONG="--full --write" takes hours
	@$(call EACH,trust true,)

mutants: $(VENV)/.test ## planted privacy bugs and the tests that kill them, then MUTANTS sampled ones of ROOMS
	$(if $(TOY),,$(PYTEST) -m "full or not full" tests/mutants)
	$(if $(filter 0,$(MUTANTS)),,$(BIN)/python -m benchmarks.mutate $(MUTANTS) --rooms $(ROOMS))

docs: $(VENV)/.docs ## the site, in build/site; NOTEBOOKS=1 runs its notebooks too
	HUSHREC_NOTEBOOKS=$(NOTEBOOKS) $(BIN)/python -m sphinx -b html --fail-on-warning --keep-going --quiet -d build/doctrees$(NOTEBOOKS) docs build/site
	@echo "wrote build/site/index.html"

bench: PART ?= quality never_loses lists public features similar next last_item year two_servers generated
bench: $(VENV)/.test ## quality against targets, PART=one of quality never_loses lists public features similar next last_item year two_servers generated; hours
	@$(call EACH,$(PART),)

frontier: $(VENV)/.test ## every method at its true epsilon against the stored runs; LONG=--long makes missing runs, hours
	$(BIN)/python -m benchmarks.frontier $(LONG)

reproduce: PAPER ?= frank_wolfe homomorphic one_bit
reproduce: $(VENV)/.test ## the figures of the papers, PAPER=one of frank_wolfe homomorphic one_bit; LONG=--long
	@$(call EACH,$(PAPER),reproduce_)

speed: PART ?= sweep first_use serve scale
speed: $(VENV)/.bench ## time and memory, PART=one of sweep (against implicit) first_use serve scale; LONG=--long
	@$(call EACH,$(PART),)

dist: $(VENV)/.release ## wheel and source archive of the last commit, built twice and compared, the README's lines with them, and an SBOM
	$(BIN)/python -m benchmarks.dist

clean: ## remove everything that make made
	rm -rf $(VENV) build demo-output bench-output *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(VENV)/.run: pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(LOCK) -e ".[plot]"
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/python -m pip install --quiet $(LOCK) -e ".[test]"
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(BIN)/python -m pip install --quiet $(LOCK) -e ".[docs]"
	@touch $@

$(VENV)/.release: $(VENV)/.run
	$(BIN)/python -m pip install --quiet $(LOCK) -e ".[release]"
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet $(LOCK) -e ".[bench]"
	@touch $@
