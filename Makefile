# make: set-up, then the demo experiment.  make test: set-up, then the tests.  make help: the rest.
# Nothing here touches the system's Python: all goes into .venv, .venv-sandbox and .venv-uv (the installer).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH ?= auto
RUN := .venv/bin/snakemake
INSTALL := "$(PYTHON)" envs/install.py
# The demo's sandboxes: bubblewrap is looked at only where they are made with it.
BWRAP := $(shell sed -n 's/^backend: *bubblewrap *$$/bwrap/p' configs/config.yaml)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_DISABLE_TELEMETRY := 1
# Settings for other programs of the user, which would change what runs here.
unexport PYTHONHOME PYTHONPATH PYTHONSAFEPATH PYTHONOPTIMIZE PYTHONWARNINGS PYTHONDONTWRITEBYTECODE SNAKEMAKE_PROFILE

.PHONY: all rl rl-seeds debugger help setup test test-full test-verl ci check peer sb-cli modal verl swe-agent clean

all: setup
	$(RUN)

# A model learns from the results of its own attempts; with three seeds, as a table.
rl: setup
	$(RUN) --config experiment=demo-rl

rl-seeds: setup
	$(RUN) --config experiment=demo-rl-seeds
	.venv/bin/python -m scripts.compare results/scores/start/drill-heldout-rl.json \
	    results/scores/rl/drill-heldout-rl.json results/scores/rl-seed1/drill-heldout-rl.json \
	    results/scores/rl-seed2/drill-heldout-rl.json

# A model learns to repair programs with Python's debugger; the same without pdb, on the same tasks.
debugger: setup
	$(RUN) --config experiment=demo-debugger
	.venv/bin/python -m scripts.compare results/scores/debugger-start/debug-heldout.json \
	    results/scores/debugger-rl/debug-heldout.json results/scores/rewrite-start/debug-heldout.json \
	    results/scores/rewrite-rl/debug-heldout.json

help:
	@./envs/help.sh

# What is missing is said before gigabytes are fetched. Bytecode: all 32,000 modules of .venv take 2 minutes, those
# that the check imports some seconds; the sandboxes cannot write theirs, so all of it is made here.
setup:
	@./envs/system.sh "$(PYTHON)" venv git patch $(BWRAP)
	@$(INSTALL) .venv --torch "$(TORCH)" --no-compile \
	    --imports torch,torchtune --imports transformers,datasets,snakemake,litellm,docker envs/cpu.txt
	@$(INSTALL) .venv-sandbox --imports pytest --path /testbed/.swelab/site-packages envs/sandbox.txt

# What must hold for a change to land; CONTRIBUTING.md tells these three apart.
test: setup
	@./envs/system.sh "$(PYTHON)" bwrap git patch docker-registry dockerd mmdebstrap
	.venv/bin/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder

test-full: setup peer sb-cli verl
	@./envs/system.sh "$(PYTHON)" bwrap git patch chromium docker-registry dockerd faketime mmdebstrap munged slurmctld
	.venv/bin/python -m tests.full

# Of `make test-full`, what trains on verl.
test-verl: setup verl
	@./envs/system.sh "$(PYTHON)" bwrap git patch munged slurmctld
	.venv/bin/python -m pytest -m full tests/contract/test_verl*.py

ci:
	@./.ci/clone

check: setup
	.venv/bin/python -m tests.luck
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/snakefmt --check Snakefile rules
	$(RUN) --lint

# Other programs, each in an environment of its own: a peer and SWE-bench's client, which tests run; Modal's.
peer sb-cli modal:
	@./envs/system.sh "$(PYTHON)" venv
	@$(INSTALL) .venv-$@ --no-compile envs/$@.txt

# The distributed engine of reinforcement learning (docs/rl-scale.md), with torch for the same machine as .venv.
verl:
	@./envs/system.sh "$(PYTHON)" venv
	@$(INSTALL) .venv-verl --torch "$(TORCH)" --no-compile --imports verl,transfer_queue,swebench envs/verl.txt

# SWE-agent is on no registry: SWE_AGENT is a checkout of its source (docs/swe-agent.md).
swe-agent:
	@test -f "$(SWE_AGENT)/sweagent/__init__.py" || \
	    { echo "error: SWE_AGENT=$(SWE_AGENT) is no checkout of SWE-agent; expected one of version 1.1.0"; exit 2; }
	@./envs/system.sh "$(PYTHON)" venv
	@$(INSTALL) .venv-swe-agent --no-compile --editable "$(SWE_AGENT)" envs/swe-agent.txt

clean:
	rm -rf results/* .snakemake
