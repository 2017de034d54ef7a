"""Stand-in for torchvision: sglang imports it for image models; text models never call it."""

from standin import stand_in

__version__ = "0.0.0+standin"
__getattr__ = stand_in(__name__)
