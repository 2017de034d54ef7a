"""torchtune's checkpointer, keeping the last epoch only.

torchtune keeps every epoch's weights and optimizer; here the previous epoch goes when the next one
is whole. `resume.json` names the epoch that training can go on from; it is absent while files are
being replaced, so that a kill in between starts over and never mixes epochs.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from torchtune.training import FullModelHFCheckpointer

from swelab.sft.torchtune_bridge import RESUME


class LastEpochCheckpointer(FullModelHFCheckpointer):
    """`FullModelHFCheckpointer` with one epoch on disk."""

    def save_checkpoint(
        self,
        state_dict: dict[str, Any],
        epoch: int,
        intermediate_checkpoint: bool = False,
        adapter_only: bool = False,
    ) -> None:
        """Saves an epoch, then removes the one before it."""
        output = Path(self._output_dir)
        (output / RESUME).unlink(missing_ok=True)
        super().save_checkpoint(state_dict, epoch, intermediate_checkpoint, adapter_only)
        for folder in output.glob("epoch_*"):
            if folder.name != f"epoch_{epoch}":
                shutil.rmtree(folder)
        part = output / f"{RESUME}.part"
        part.write_text(json.dumps({"epoch": epoch}), encoding="utf-8")
        os.replace(part, output / RESUME)
