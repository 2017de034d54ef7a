"""Attention of the CPU server, in place of sglang's own, which pads new tokens with the cached prefix and,
for each token, copies keys and values once for each query head."""

from typing import Any

from sglang.srt.layers.attention import attention_registry
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from torch import Tensor, arange
from torch.nn.functional import scaled_dot_product_attention


def register() -> None:
    """Puts `CpuAttention` in the place of sglang's `torch_native`. sglang calls this function at its start:
    `cpu_attention-0.dist-info/entry_points.txt` lists it among sglang's plugins."""
    attention_registry.ATTENTION_BACKENDS["torch_native"] = CpuAttention


class CpuAttention(TorchNativeAttnBackend):
    """Computes what its base computes. Causal attention of decoders to all earlier tokens is computed here,
    other kinds by the base."""

    def __init__(self, runner: Any):
        super().__init__(runner)
        self._slots: list[Tensor] = []

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Finds the cache slots of each sequence, once for all layers."""
        super().init_forward_metadata(forward_batch)
        sequences = zip(forward_batch.req_pool_indices, forward_batch.seq_lens.tolist(), strict=True)
        table = self.req_to_token_pool.req_to_token
        self._slots = [table[row, :length].long() for row, length in sequences]

    def _run_sdpa_forward_decode(
        self, query: Tensor, output: Tensor, keys: Tensor, values: Tensor, *rest: Any, **kind: Any
    ) -> Any:
        if _is_special(rest, kind):
            return super()._run_sdpa_forward_decode(query, output, keys, values, *rest, **kind)
        return self._attend(query, output, keys, values, [1] * len(self._slots), kind["scaling"])

    def _run_sdpa_forward_extend(
        self, query: Tensor, output: Tensor, keys: Tensor, values: Tensor, *rest: Any, **kind: Any
    ) -> Any:
        if _is_special(rest, kind) or not kind["causal"]:
            return super()._run_sdpa_forward_extend(query, output, keys, values, *rest, **kind)
        news = rest[4].tolist()
        return self._attend(query, output, keys, values, news, kind["scaling"])

    def _attend(
        self, query: Tensor, output: Tensor, keys: Tensor, values: Tensor, news: list[int], scale: float
    ) -> Any:
        """query: [tokens, heads, size], the last `news[i]` tokens of each sequence. keys, values: [slots,
        key heads, size]."""
        start = 0
        for new, slots in zip(news, self._slots, strict=True):
            end = start + new
            key, value = (
                each.index_select(0, slots).to(query.dtype).transpose(0, 1)[None] for each in (keys, values)
            )
            output[start:end] = (_last if new == 1 else _several)(query[start:end], key, value, scale)
            start = end
        return output


def _last(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Query heads that share a key head are rows of one product."""
    _, heads, size = query.shape
    rows = query.view(1, keys.shape[1], -1, size)
    return scaled_dot_product_attention(rows, keys, values, scale=scale).view(1, heads, -1)


def _several(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    new, length = query.shape[0], keys.shape[2]
    whole = new == length
    mask = None if whole else arange(length) <= arange(length - new, length)[:, None]
    rows = query.transpose(0, 1)[None]
    mixed = scaled_dot_product_attention(
        rows, keys, values, attn_mask=mask, is_causal=whole, scale=scale, enable_gqa=True
    )
    return mixed[0].transpose(0, 1)


def _is_special(rest: tuple[Any, ...], kind: dict[str, Any]) -> bool:
    """Whether sequences have an encoder's part, or see only a window."""
    with_encoder = len(rest) in (4, 6) and rest[-1] is not None
    return with_encoder or kind["is_cross_attn"] or kind["sliding_window_size"] is not None
