"""Makes the models that a training run's rollouts use."""

from collections.abc import Callable

from swelab.agents.agent import open_agent
from swelab.configs.kinds.rl import Rl
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.token_turn import TokenTurn
from swelab.rl.managed_model import ManagedModel
from swelab.rl.token_model import TokenEngine, TokenModel
from swelab.rl.token_template import TokenTemplate


def model_maker(
    recipe: Rl, engine: TokenEngine, template: TokenTemplate, scaffold: MiniLoop, temperature: float
) -> Callable[[Callable[[TokenTurn], None], list[TokenTurn]], TokenModel]:
    """Returns a function that makes the model of one rollout. The model stores its turns as token ids. The
    recipe's `history` decides which earlier turns the model sees. The first messages offer the scaffold's
    tools."""
    rollouts = recipe.rollouts
    told = offering(template, scaffold, rollouts.thinking, rollouts.reasoning_effort)
    common = (engine, told, scaffold, {**rollouts.sampling, "temperature": temperature}, "policy")
    if rollouts.history == "whole":
        return lambda add_turn, turns: TokenModel(*common, add_turn, turns)
    budget = rollouts.context_length - rollouts.max_tokens
    return lambda add_turn, turns: ManagedModel(
        *common, add_turn, turns, budget=budget, head_share=rollouts.head_share
    )


def offering(
    template: TokenTemplate, scaffold: MiniLoop, thinking: bool | None = None, effort: str | None = None
) -> TokenTemplate:
    """Returns the template with the tools of the scaffold's agent. Raises InputError if the template omits
    them."""
    tools = open_agent(scaffold.agent).form(scaffold).offered.get("tools", ())
    return template.offering(tools, thinking, effort)
