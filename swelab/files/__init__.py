"""Reads and writes file formats of other programs: JSON of any size, data sets, the Hugging Face hub,
checkpoints."""
