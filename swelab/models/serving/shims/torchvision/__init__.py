"""Stand-in for torchvision, which sglang imports for image models. Text models never call it."""

from standin import stand_in

__version__ = "0.0.0+standin"
__getattr__ = stand_in(__name__)
