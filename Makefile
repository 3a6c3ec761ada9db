# Short names for what the project does. Every target does its own set-up, so
# each works on a fresh machine; what is there already is not done again.

BUILD ?= build

.PHONY: help demo test matrix wheel real sweep sizes clean-runs bench docs tidy format clean setup

help:
	@echo 'make demo     find a real bug from nothing: two training runs and the explanation'
	@echo 'make test     everything that must hold before a change lands'
	@echo 'make matrix   every topology and every bug of the zoo (resumable; an hour or more)'
	@echo 'make real     the pretrain_gpt.py of a Megatron-LM checkout: MEGATRON_LM=path'
	@echo 'make sweep    hundreds of planted faults and as many clean runs (resumable; an hour)'
	@echo 'make sizes    clean runs of growing models, none of which may be flagged (resumable; hours)'
	@echo 'make clean-runs  clean runs drawn at random, the development half (resumable; hours)'
	@echo 'make wheel    wheels for every CPython here, for x86-64 and 64-bit Arm, in dist/'
	@echo 'make bench    what capture and check cost on this machine'
	@echo 'make docs     the site of the documents: build/site/index.html'
	@echo 'make format   rewrite C++ and Python in the project style'
	@echo 'make tidy     clang-tidy on every file'
	@echo 'make clean    remove what was built (not .venv)'

setup:
	@scripts/setup_system.sh chromium
	@scripts/setup_python.sh

demo:
	@scripts/setup_system.sh --build
	@scripts/setup_python.sh --demo
	@scripts/demo.sh

test:
	@scripts/run_tests.sh

wheel: setup
	@.venv/bin/python scripts/make_wheels.py

matrix: setup
	@scripts/matrix.sh

real: setup
	@scripts/real.sh "$(MEGATRON_LM)"

sweep: setup
	@.venv/bin/python scripts/sweep.py

sizes: setup
	@.venv/bin/python scripts/sizes.py

clean-runs: setup
	@.venv/bin/python scripts/clean_runs.py --half A --models 0:80

bench: setup
	@scripts/bench.sh

docs:
	@scripts/setup_python.sh --deps
	@scripts/docs.sh

tidy: setup
	@scripts/configure.sh tidy
	@.venv/bin/python scripts/tidy.py --all

format: setup
	@git ls-files -co --exclude-standard '*.cc' '*.h' | xargs clang-format-14 -i
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

clean:
	@rm -rf $(BUILD) demo-report
