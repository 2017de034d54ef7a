"""Registers our extensions with verl. Each verl process imports this module first, because of
$VERL_USE_EXTERNAL_MODULES."""

import os

ON_CPU = os.environ.get("VERL_PLATFORM") == "cpu"

if ON_CPU:
    from swelab.rl.engines import verl_cpu

    verl_cpu.install()
    from swelab.rl.engines.verl_weights import install

    install()

from swelab.rl.engines import verl_advantages  # noqa: E402

verl_advantages.register()
