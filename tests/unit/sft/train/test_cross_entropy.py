"""The loss that computes logits only at labels has the value and gradients of the usual loss."""

import pytest
import torch
from torch.nn import functional
from torchtune.models.qwen2 import qwen2

from swelab.sft.train.cross_entropy import TrainedTokensLoss

SHAPE = {"vocab_size": 40, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 32}
SHAPE |= {"intermediate_dim": 48, "max_seq_len": 64}


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_cross_entropy_over_all_tokens(tied):
    torch.manual_seed(0)
    model = qwen2(**SHAPE, tie_word_embeddings=tied)
    tokens = torch.randint(0, 40, (3, 20))
    labels = torch.where(torch.rand(3, 20) < 0.3, tokens, -100)
    logits = model(tokens)
    usual = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    usual.backward()
    wanted = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    loss, names = TrainedTokensLoss(), list(model.state_dict())
    loss.take_over(model)
    hidden = model(tokens)
    assert hidden.shape == (3, 20, 32) and not list(loss.parameters())
    found = loss(hidden.flatten(0, 1), labels.flatten())
    found.backward()
    assert found.item() == pytest.approx(usual.item(), rel=1e-6)
    assert list(model.state_dict()) == names
    for name, weight in model.named_parameters():
        assert torch.allclose(weight.grad, wanted[name], rtol=1e-4, atol=1e-7), name
