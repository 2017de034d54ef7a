"""Log-probabilities are those of the model's own forward pass, with the scaling that a family has."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from swelab.records import InputError
from swelab.rl.scorer import Scorer, check_scores

SIZES = {
    "vocab_size": 200,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
FAMILIES = {
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "llama": {},
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.0625},
    "cohere2": {"logit_scale": 0.0625, "head_dim": 8},
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 3.0},
    "phi3": {"pad_token_id": 0},
}


def scorer_of(family, **settings):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**SIZES, **settings})).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)
    return Scorer(model, 1.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_model_itself(family, tmp_path):
    scorer = scorer_of(family, **FAMILIES[family])
    check_scores(scorer, tmp_path)
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        found, _ = scorer(ids, torch.ones_like(ids, dtype=torch.bool))
        logs = scorer.model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
    expected = logs.gather(1, ids[0, 1:, None])[:, 0]
    assert torch.allclose(found[0, 1:], expected, atol=1e-4)


def test_a_model_with_another_scaling_is_refused_by_name(tmp_path):
    scorer = scorer_of("qwen2")
    forward = scorer.model.forward

    def scale(**inputs):
        found = forward(**inputs)
        found.logits = found.logits * 1.5
        return found

    scorer.model.forward = scale
    with pytest.raises(
        InputError, match="Qwen2ForCausalLM scales its logits in a way that is not known here"
    ):
        check_scores(scorer, tmp_path)
