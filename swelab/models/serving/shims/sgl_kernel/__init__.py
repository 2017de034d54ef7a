"""Stand-in for sglang's CUDA kernels, published as wheels for GPUs alone; CPU paths never call them."""

from standin import stand_in

__version__ = "0.0.0+standin"
__getattr__ = stand_in(__name__)
