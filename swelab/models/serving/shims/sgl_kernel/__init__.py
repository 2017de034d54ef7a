"""Stand-in for sglang's CUDA kernels, which exist only as GPU wheels. The CPU code never calls them."""

from standin import stand_in

__version__ = "0.0.0+standin"
__getattr__ = stand_in(__name__)
