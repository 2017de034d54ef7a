# make: set-up, then the demo experiment.  make test: set-up, then the tests.
# Nothing here touches the system's Python: all goes into .venv and .venv-sandbox.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
RUN := .venv/bin/snakemake
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: all setup test check peer sb-cli modal swe-agent clean

all: setup
	$(RUN)

setup: .venv/.installed .venv-sandbox/.installed
	@./envs/system.sh $(PYTHON) bwrap git patch

test: setup peer sb-cli
	@./envs/system.sh $(PYTHON) bwrap git patch chromium docker-registry dockerd faketime mmdebstrap munged slurmctld
	.venv/bin/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/snakefmt --check Snakefile rules
	$(RUN) --lint

.venv/.installed: envs/torch.txt envs/cpu.txt
	@./envs/system.sh $(PYTHON) venv
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q -r envs/torch.txt
	.venv/bin/pip install -q --no-deps -r envs/cpu.txt
	@touch $@

.venv-sandbox/.installed: envs/sandbox.txt
	@./envs/system.sh $(PYTHON) venv
	$(PYTHON) -m venv .venv-sandbox
	.venv-sandbox/bin/pip install -q -r envs/sandbox.txt
	@echo /testbed/.swelab/site-packages >"$$(echo .venv-sandbox/lib/python3.*/site-packages)/swelab_task.pth"
	@touch $@

# Other programs, each in an environment of its own: a peer and SWE-bench's client, which tests run; Modal's.
peer: .venv-peer/.installed
sb-cli: .venv-sb-cli/.installed
modal: .venv-modal/.installed

.venv-peer/.installed .venv-sb-cli/.installed .venv-modal/.installed: .venv-%/.installed: envs/%.txt
	@./envs/system.sh $(PYTHON) venv
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install -q --no-compile --no-deps -r $<
	@touch $@

# SWE-agent is on no registry: SWE_AGENT is a checkout of its source (docs/swe-agent.md).
swe-agent: .venv-swe-agent/.installed

.venv-swe-agent/.installed: envs/swe-agent.txt
	@test -f "$(SWE_AGENT)/sweagent/__init__.py" || \
	    { echo "error: SWE_AGENT=$(SWE_AGENT) is no checkout of SWE-agent; expected one of version 1.1.0"; exit 2; }
	$(PYTHON) -m venv .venv-swe-agent
	.venv-swe-agent/bin/pip install -q --no-deps -r envs/swe-agent.txt
	.venv-swe-agent/bin/pip install -q --no-deps --editable "$(SWE_AGENT)"
	@touch $@

clean:
	rm -rf results/* .snakemake
