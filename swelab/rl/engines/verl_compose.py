"""Composes verl's configuration from overrides and lets verl check it. Runs in verl's own environment.

`python -m swelab.rl.engines.verl_compose` reads {name: [override, ...]} from standard input. The last line of
its output is {name: fault}. A fault is "" if verl accepts the configuration.
"""

import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

PARTS = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout")
"""Sections of the configuration that verl converts to typed settings. The conversion validates a section. The
model's section is excluded, because its conversion needs the model's folder."""
OWN = ("weigh",)
"""Keys that only our estimator reads. verl does not define them."""


def fault(overrides: list[str]) -> str:
    """Returns verl's objection to the overrides as one line, or "" if verl accepts them. hydra must be
    initialized."""
    from hydra import compose
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        config: Any = compose("ppo_trainer", overrides)
        OmegaConf.to_container(config, resolve=False, throw_on_missing=False)
        validate_config(config, need_reference_policy(config), need_critic(config))
        judged = ["reward.reward_model"] if config.reward.reward_model.enable else []
        for part in [*PARTS, *judged]:
            omega_conf_to_dataclass(OmegaConf.select(config, part))
        algorithm = {key: value for key, value in config.algorithm.items() if key not in OWN}
        omega_conf_to_dataclass(OmegaConf.create(algorithm))
        get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    except Exception as error:  # verl and hydra raise AssertionError and other types
        return " ".join(f"{type(error).__name__}: {error}".split())[:400]
    return ""


def main() -> None:
    """Reads overrides from standard input and writes faults. verl's own output goes to standard error."""
    from hydra import initialize_config_dir

    overrides_by_name = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        import verl.trainer

        folder = Path(os.path.dirname(verl.trainer.__file__), "config")
        with initialize_config_dir(str(folder), version_base=None):
            found = {name: fault(overrides) for name, overrides in overrides_by_name.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
