"""Runs a training on verl: starts and watches verl's processes, and ends them when this process ends.

After a kill, the same command resumes the run. verl starts from its newest checkpoint, and finished rollouts
are read from the journals.
"""

import os
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.jobs.child_process import ChildProcess, fault_line
from swelab.records import Fault, write_json, write_jsonl
from swelab.rl import metrics
from swelab.rl.engines.verl_export import export, newest_step
from swelab.rl.engines.verl_keys import JudgeModel, RunFiles, overrides
from swelab.rl.engines.verl_machine import (
    TRANSFER_FOLDER,
    machine_keys,
    python_of_verl,
    surroundings,
)
from swelab.rl.engines.verl_order import AGENT, Order, rows, validation_rows, write_order
from swelab.rl.engines.verl_ray import JobRay, OwnRay, open_ray
from swelab.rl.engines.verl_records import FIGURES, TRAINED, RunRecords
from swelab.rl.engines.verl_workplace import FAULT
from swelab.rl.machine_check import stop_unless_fit
from swelab.rl.prompts import check_tasks
from swelab.rl.rollout_inputs import Reads
from swelab.rl.step_reports import Reports
from swelab.sft.train.device import device_of, dtype_of

LOOP = "swelab.rl.engines.verl_loop.SwelabLoop"
POLL_SECONDS = 1.0
GRACE_SECONDS = 20.0


class VerlEnded(Fault):
    """verl ended before the training was finished."""


def train_on_verl(
    recipe: Rl, start: Path, reads: Reads, folder: Path, reports: Reports | None = None
) -> Path:
    """Trains the checkpoint `start` on verl, writes all files to `folder`, and returns the last checkpoint.
    See `training_run.train_policy`. Raises Fault, InputError, VerlEnded."""
    check_tasks(recipe, reads.tasks, reads.held_out)
    resolved = resolve_auto(recipe)
    stop_unless_fit(resolved, start)
    run = VerlRun(resolved, start.absolute(), absolute(reads), folder.absolute(), reports or Reports())
    return run.train()


def resolve_auto(recipe: Rl) -> Rl:
    """Returns the recipe with `auto` replaced by this machine's device and dtype."""
    device = device_of(recipe.train).partition(":")[0]
    found = {"device": device, "dtype": dtype_of(recipe.train)}
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=found)})


def absolute(reads: Reads) -> Reads:
    """Returns a copy of the inputs with absolute paths, for processes with another working directory."""
    witness = [path.absolute() for path in reads.witness]
    return Reads(reads.tasks, reads.repos_dir.absolute(), reads.held_out, reads.images, witness)


@dataclass(frozen=True)
class VerlRun:
    """One training run in its folder. verl's files are below `folder`/verl."""

    recipe: Rl
    start: Path
    reads: Reads
    folder: Path
    reports: Reports

    @property
    def own(self) -> Path:
        """verl's folder."""
        return self.folder / "verl"

    @property
    def order(self) -> Order:
        """Input for verl's processes."""
        scaffold = recipes.load_named(SCAFFOLD, self.recipe.scaffold).model_dump(exclude_none=True)
        loops = self.recipe.cluster.rollout.loops
        return Order(self.recipe, scaffold, self.start, self.reads, self.folder, loops)

    def train(self) -> Path:
        """Runs all steps that are left, and returns the last checkpoint."""
        records, last = self._records, self.recipe.train.steps
        reporter = StepReporter(records, self.reports, self.folder)
        with closing(self.reports):
            self.reports.begin(last, newest_step(self.own), last * self._rollouts, 0)
            if newest_step(self.own) < last:
                self._prepare()
                self._run(reporter)
            reporter.up_to(newest_step(self.own), whole=True)
        if (done := newest_step(self.own)) < last:
            raise VerlEnded(f"verl ended well after {done} of {last} steps; log: {self._log}")
        write_jsonl(self.folder / "validation.jsonl", records.validation_lines())
        metrics.check_trained(self.folder / "metrics.jsonl")
        target = self.folder / f"checkpoint-{last:05d}"
        export(self.own / f"global_step_{last}", self.start, target)
        return target

    @property
    def _records(self) -> RunRecords:
        return RunRecords(self.order, self.own)

    @property
    def _rollouts(self) -> int:
        return self.recipe.rollouts.prompts * self.recipe.rollouts.samples

    @property
    def _log(self) -> Path:
        return self.folder / "verl.log"

    def _prepare(self) -> None:
        """Writes the files that verl reads. If a resumed run has more steps than before, its files have more
        rows, and the earlier rows stay the same. So the run's position in the rows stays valid."""
        asked, ahead = self.recipe.rollouts, self.recipe.rollouts.ahead
        steps = self.recipe.train.steps + ahead + 2
        count = steps * asked.prompts
        for name in (TRAINED, FIGURES):
            (self.own / name).mkdir(parents=True, exist_ok=True)
        (self.folder / FAULT).unlink(missing_ok=True)
        write_order(self.own / "order.json", self.order)
        write_jsonl(self.own / "train.jsonl", rows(self.order, count))
        write_jsonl(self.own / "held-out.jsonl", validation_rows(self.order))
        loop = {"name": AGENT, "_target_": LOOP, "order": str(self.own / "order.json")}
        write_json(self.own / "loops.yaml", [loop])  # JSON is YAML

    def _run(self, reporter: "StepReporter") -> None:
        """Runs verl to its end. Raises Fault, VerlEnded."""
        python, number = python_of_verl(), len(list((self.own / FIGURES).iterdir()))
        figures = self.own / FIGURES / f"{number:05d}.jsonl"
        own = {**surroundings(self.recipe), "VERL_FILE_LOGGER_PATH": str(figures)}
        own |= {"RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)}
        own |= {"HF_DATASETS_CACHE": str(self.own / "cache")}
        own |= {TRANSFER_FOLDER: str(self.own / "transfer")}
        self._sweep()
        env = {**os.environ, **own}
        with open_ray(self.recipe, python, env, self.folder) as ray, open(self._log, "ab") as log:
            verl = ChildProcess(
                lambda private: ray.command(private, self.overrides(private, ray.address)),
                env=env,
                log=log,
                nests=True,
            )
            try:
                self._follow(verl, reporter, ray)
            finally:
                verl.stop(GRACE_SECONDS if sys.exc_info()[0] is None else 0)

    def _validates_first(self) -> bool:
        """Returns whether verl must validate before its first step. A validation is needed if one is due for
        the newest checkpoint and does not exist yet."""
        asked, done = self.recipe.validation, newest_step(self.own)
        if not asked or done % asked.every:
            return False
        return done not in self._records.validated_steps()

    def _sweep(self) -> None:
        """Removes the private folder of an earlier verl process that was killed."""
        with suppress(OSError):
            shutil.rmtree((self.own / "private").read_text(), ignore_errors=True)

    def overrides(self, private: str, address: str) -> list[str]:
        """Returns the overrides of verl's settings. private: a folder with a short path, which is removed
        when the run ends. address: the address of Ray."""
        (self.own / "private").write_text(private)
        files = RunFiles(
            self.folder.name,
            self.start,
            self.own / "train.jsonl",
            self.own / "held-out.jsonl",
            self.own / "loops.yaml",
            self.own,
            JudgeModel.of(self.recipe),
        )
        ours = [
            f"trainer.rollout_data_dir={self.own / TRAINED}",
            f"trainer.val_before_train={self._validates_first()}",
            f"hydra.run.dir={self.own / 'hydra'}",
            "hydra.output_subdir=null",
        ]
        return [*overrides(self.recipe, files), *ours, *machine_keys(self.recipe, private, address)]

    def _follow(self, verl: ChildProcess, reporter: "StepReporter", ray: OwnRay | JobRay) -> None:
        while (status := verl.poll()) is None:
            if (self.folder / FAULT).exists():
                raise VerlEnded((self.folder / FAULT).read_text().strip())
            if fault := ray.fault():
                raise VerlEnded(fault)
            reporter.up_to(newest_step(self.own))
            time.sleep(POLL_SECONDS)
        if status:
            raise VerlEnded(f"verl ended with {status}: {fault_line(self._log)}; log: {self._log}")


class StepReporter:
    """Reports the finished steps of a run, and writes them to metrics.jsonl."""

    def __init__(self, records: RunRecords, reports: Reports, folder: Path):
        self._records, self._reports, self._folder = records, reports, folder
        self._lines: dict[int, dict[str, float]] = {}

    def up_to(self, saved: int, whole: bool = False) -> None:
        """Reports each finished step that was not reported before.

        saved: number of the last saved step. whole: whether verl has ended. While verl runs, the newest step
        is not reported, because verl may still write to it.
        """
        figures = self._records.figures()
        known = sorted(step for step in figures if step and (whole or step < max(figures)))
        wanted: Sequence[int] = range(1, saved + 1) if whole else known
        new = [step for step in wanted if step not in self._lines]
        for step in new:
            for done in self._records.write_rollouts(step):
                self._reports.rolled_out(done)
            self._lines[step] = self._records.step(step, figures.get(step, {}))
            self._reports.step(self._lines[step])
        if new or whole:
            self._write()

    def _write(self) -> None:
        lines = {step: dict(line) for step, line in self._lines.items()}
        for moment in self._records.validated_steps():
            found = self._records.validation(moment)
            lines[moment] = {"step": moment, **lines.get(moment, {}), **found}
        write_jsonl(self._folder / "metrics.jsonl", (lines[step] for step in sorted(lines)))
