#!/bin/sh
# Usage: help.sh   Prints the targets of `make` and their variables.
case "${1:---help}" in -h | --help) ;; *) echo "error: $1: no option is known" >&2; exit 2 ;; esac
cat <<'TEXT'
Usage: make [TARGET...] [NAME=VALUE...]

make              set-up, then the demo experiment: results/verified_score.json and results/report.html
make real         set-up, then a pretrained model that learns to repair real packages (docs/demo.md)
make rl           set-up, then the demo of reinforcement learning (docs/rl.md)
make rl-seeds     the same with three seeds, and a table of the results
make debugger     a model that learns to repair programs with Python's debugger (docs/debugger.md)
make setup        only the set-up: .venv and .venv-sandbox; quick if nothing is missing
make test         set-up, then the tests that a change must pass (as root: their Debian packages too)
make test-full    set-up, then all other tests: kills, clusters, peers, verl; 1 hour 45 minutes
make test-verl    only those of `make test-full` that train on verl
make ci           `make check` and `make test` on a fresh clone of HEAD and a minimal Debian machine; needs root
make ci-here      the same on this machine; both write the commit to .git/ci-green
make check        linters, type checker, format of the rules
make verl         verl in .venv-verl, for training on several machines (docs/rl-scale.md); part of `make test-full`
make peer         SWE-smith's own library in .venv-peer, for tests that compare with it
make sb-cli       SWE-bench's service client in .venv-sb-cli (docs/scoring-service.md)
make modal        Modal's client in .venv-modal (docs/modal.md)
make swe-agent SWE_AGENT=checkout    SWE-agent in .venv-swe-agent (docs/swe-agent.md)
make clean        removes all results

PYTHON=/path/to/python3.11    the Python of the environments; default: python3.11 in PATH, or else one that uv fetches
UV_PYTHON_INSTALL_MIRROR=URL  where uv fetches that Python from; it goes to .python
UV=/path/to/uv                the installer; default: uv 0.13.9 in PATH, or else from the index, in .venv-uv
PIP_INDEX_URL, PIP_FIND_LINKS, ...    where packages come from, as for pip; pip.conf is read, too
TORCH=cpu, TORCH=cuda         the build of torch; default: cuda if nvidia-smi lists a GPU, or else cpu

.venv/bin/python -m scripts.doctor       checks this machine, and says how to fix each fault
.venv/bin/snakemake -n                   prints the jobs that a run would start, and why; without -n it starts them
TEXT
