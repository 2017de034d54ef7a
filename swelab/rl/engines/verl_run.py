"""Runs a training on verl: starts and watches verl's processes, and ends them when this process ends.

After a kill, the same command resumes the run. verl starts from its newest checkpoint, and finished rollouts
are read from the journals.

On one machine, verl starts Ray itself. On several nodes of a SLURM job, this module starts Ray: the head and
verl on the first node (`verl_head`), and on each other node a Ray node in a SLURM job step (`verl_node`).
When one of these processes ends, the training run ends. The records of the run are those of the embedded
engine, computed from files in the run's folder alone, so a kill loses nothing.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from swelab.cluster import slurm
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.jobs.child_process import ChildProcess, fault_line
from swelab.jobs.journal import read_journal
from swelab.models.serving.server import free_port
from swelab.records import Fault, InputError, Record, write_json, write_jsonl
from swelab.rl import metrics
from swelab.rl.artifacts import Artifacts, validation_row
from swelab.rl.engines.verl_export import export, newest_step
from swelab.rl.engines.verl_keys import JudgeModel, RunFiles, overrides
from swelab.rl.engines.verl_machine import (
    STORE_BYTES,
    TRANSFER_FOLDER,
    logical_cpus,
    machine_keys,
    python_of_verl,
    surroundings,
)
from swelab.rl.engines.verl_order import AGENT, Order, rows, validation_rows, write_order
from swelab.rl.engines.verl_workplace import FAULT
from swelab.rl.machine_check import stop_unless_fit
from swelab.rl.method import Group, group_figures, group_of
from swelab.rl.prompts import check_tasks
from swelab.rl.rollout_inputs import Reads
from swelab.rl.rollouts import RolledOut, RolloutRequest, read_result
from swelab.rl.step_reports import Reports
from swelab.sft.train.device import device_of, dtype_of

JOIN_SECONDS = 300.0
"""Seconds within which every node of the job must join Ray."""
STOP_SECONDS = 20.0
MAIN = "verl.trainer.main_ppo"
HEAD, NODE = "swelab.rl.engines.verl_head", "swelab.rl.engines.verl_node"


class OwnRay:
    """Ray that verl starts, or a Ray cluster that already runs at $RAY_ADDRESS."""

    def __init__(self, python: Path):
        self._python = python
        self.address = os.environ.get("RAY_ADDRESS", "")

    def command(self, private: str, words: Sequence[str]) -> list[str]:
        """Returns the command line that runs verl with the arguments `words`."""
        return [str(self._python), "-m", MAIN, *words]

    def fault(self) -> str:
        """Returns "", because we do not watch the processes of this Ray."""
        return ""


@dataclass
class JobRay:
    """Ray on the nodes of our SLURM job. This process runs on the first node. env: environment variables of
    verl's processes on every node. folder: folder for the logs of the nodes."""

    recipe: Rl
    python: Path
    env: Mapping[str, str]
    folder: Path
    nodes: Sequence[slurm.Node]
    _steps: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._host = socket.gethostbyname(self.nodes[0].address)
        self._port = free_port(self._host)

    @property
    def address(self) -> str:
        """Address of Ray's head, "host:port"."""
        return f"{self._host}:{self._port}"

    def command(self, private: str, words: Sequence[str]) -> list[str]:
        """Returns the command line that runs Ray's head and verl."""
        head = [*self._words(self.nodes[0]), "--head", f"--port={self._port}", "--include-dashboard=false"]
        head.append(f"--temp-dir={private}/ray")
        verl = [str(self.python), "-m", MAIN, *words]
        told = [len(self.nodes), self.address, JOIN_SECONDS, json.dumps(head), json.dumps(verl)]
        return [str(self.python), "-m", HEAD, *map(str, told)]

    def fault(self) -> str:
        """Returns a line that says where and why Ray has ended, or "" while Ray runs on all nodes."""
        for name, step in self._steps.items():
            if (status := step.poll()) is not None:
                said = [path for path in self._logs(name) if path.exists() and path.stat().st_size]
                why = fault_line(said[-1]) if said else "it said nothing"
                return f"node {name}: Ray ended with {status}: {why}; logs: {self._logs(name)[0]}"
        return ""

    def start(self) -> None:
        """Starts a SLURM job step on each other node. The steps wait for Ray's head."""
        for node in self.nodes[1:]:
            command = ["srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--nodes=1", "--ntasks=1"]
            command += ["--overlap", f"--nodelist={node.name}", "--mem=0", "--quiet"]
            command += [f"--cpus-per-task={self.recipe.job.cpus}"]
            command += [f"--gpus={gpus}"] if (gpus := self.recipe.job.gpus) else []
            with open(self._logs(node.name)[1], "ab") as log:
                self._steps[node.name] = step = subprocess.Popen(
                    [*command, sys.executable, "-m", NODE],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    start_new_session=True,
                )
            words, log_path = [*self._words(node), f"--address={self.address}"], self._logs(node.name)[0]
            told: Record = {"words": words, "host": self._host, "port": self._port, "log": str(log_path)}
            told["seconds"] = JOIN_SECONDS
            assert step.stdin
            with suppress(BrokenPipeError):
                step.stdin.write(json.dumps(told).encode() + b"\n")
                step.stdin.flush()

    def stop(self) -> None:
        """Ends the SLURM job steps by closing their standard input. Kills steps that do not end in time."""
        for step in self._steps.values():
            assert step.stdin
            with suppress(BrokenPipeError):
                step.stdin.close()
        for step in self._steps.values():
            for end in (step.terminate, step.kill):
                try:
                    step.wait(STOP_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    end()
            step.wait()

    def _words(self, node: slurm.Node) -> list[str]:
        """Returns the command `ray start` for a node. The operating system chooses ports, because other jobs
        may run on the node."""
        address = socket.gethostbyname(node.address)
        words = [str(self.python.with_name("ray")), "start", "--block", "--disable-usage-stats"]
        words += [f"--node-ip-address={address}", "--min-worker-port=0", "--max-worker-port=0"]
        words += [f"--num-gpus={self.recipe.cluster.gpus}", f"--num-cpus={logical_cpus(self.recipe)}"]
        on_cpu = self.recipe.train.device == "cpu"
        return [*words, f"--object-store-memory={STORE_BYTES}"] if on_cpu else words

    def _logs(self, name: str) -> tuple[Path, Path]:
        """Returns two log files for a node: the log of Ray, and the log of the SLURM job step that runs
        Ray."""
        return self.folder / f"ray-{name}.log", self.folder / f"ray-{name}.srun.log"


@contextmanager
def open_ray(recipe: Rl, python: Path, env: Mapping[str, str], folder: Path) -> Iterator[OwnRay | JobRay]:
    """Opens Ray for the recipe's job. Raises InputError if the recipe needs several nodes, but this process
    is not in a SLURM job with exactly as many nodes. Raises SlurmError if SLURM does not list the nodes."""
    if recipe.job.nodes == 1 or os.environ.get("RAY_ADDRESS"):
        yield OwnRay(python)
        return
    if not os.environ.get("SLURM_JOB_ID"):
        what = "a SLURM job (snakemake ... --profile slurm), or Ray's head in $RAY_ADDRESS"
        raise InputError(f"job.nodes is {recipe.job.nodes}", expected=what)
    nodes = slurm.job_nodes()
    if len(nodes) != recipe.job.nodes:
        raise InputError(f"{len(nodes)} nodes in this SLURM job", expected=f"{recipe.job.nodes} (job.nodes)")
    running = JobRay(recipe, python, env, folder, nodes)
    try:
        running.start()
        yield running
    finally:
        running.stop()


TRAINED, FIGURES = "trained", "figures"
"""Folders below verl's own folder. TRAINED: rows of each step as verl wrote them. FIGURES: verl's figures,
one file for each start of verl."""
ROLLOUTS = "rollouts"
NAMES = {
    "actor/pg_loss": "train/loss",
    "actor/grad_norm": "train/grad_norm",
    "actor/lr": "train/lr",
    "actor/entropy": "train/entropy",
    "actor/pg_clipfrac": "train/clipped",
    "actor/kl_loss": "train/kl",
    "timing_s/gen": "time/rollouts",
    "timing_s/update_weights": "time/publish",
    "timing_s/testing": "time/validation",
}
"""Maps verl's figures to our figures with the same meaning. Every figure of verl also appears with the prefix
`verl/`."""
TRAINING = ("timing_s/old_log_prob", "timing_s/ref", "timing_s/adv", "timing_s/update_actor")


@dataclass(frozen=True)
class RunRecords:
    """Reads the files of a training run. folder: verl's own folder, below the run's folder."""

    order: Order
    folder: Path

    def figures(self) -> dict[int, Record]:
        """Returns verl's figures, keyed by step. If a step was repeated, the later figures replace the
        earlier figures."""
        found: dict[int, Record] = {}
        for path in sorted((self.folder / FIGURES).glob("*.jsonl")):
            for line in _whole_lines(path):
                found[int(line["step"])] = found.get(int(line["step"]), {}) | line["data"]
        return found

    def step(self, number: int, figures: Mapping[str, float]) -> Record:
        """Returns the line of a step in metrics.jsonl. number: the step's number, counted from 1."""
        groups = self.groups(number)
        tokens = sum(
            attempt.trained_tokens
            for group in groups
            for attempt, trained in zip(group.attempts, group.treated.trained, strict=True)
            if trained
        )
        line = {"step": number, **group_figures(groups, str(number - 1)), "train/tokens": float(tokens)}
        numbers = {name: value for name, value in figures.items() if isinstance(value, (int, float))}
        line |= {ours: numbers[name] for name, ours in NAMES.items() if name in numbers}
        if spent := [numbers[name] for name in TRAINING if name in numbers]:
            line["time/train"] = round(sum(spent), 3)
        return line | {f"verl/{name}": value for name, value in sorted(numbers.items())}

    def groups(self, number: int) -> list[Group]:
        """Returns the groups that a step was trained on."""
        return [group_of(self._rollouts(each), self.order.recipe) for each in self.prompts(number)]

    def prompts(self, number: int) -> list[int]:
        """Returns the numbers of the prompts that a step was trained on, from verl's records. Without
        records, returns the numbers that the recipe gives for the step."""
        lines = _whole_lines(self.folder / TRAINED / f"{number}.jsonl")
        if told := sorted({int(line["gts"]) for line in lines if not line["uid"].startswith("pad")}):
            return told
        count = self.order.recipe.rollouts.prompts
        return list(range((number - 1) * count, number * count))

    def write_rollouts(self, number: int) -> list[RolledOut]:
        """Writes a folder for each rollout that the recipe selects from a step. Returns all rollouts of the
        step."""
        artifacts, groups = Artifacts(self.order.folder / ROLLOUTS, self.order.recipe), self.groups(number)
        for group in groups:
            artifacts.write(number, group)
        return [done for group in groups for done in group.rollouts]

    def validated_steps(self) -> list[int]:
        """Returns the numbers of steps after which a validation was completed."""
        parent = self.order.validation_folder(0).parent
        return [number for number in map(int, _names(parent)) if self._attempts(number)]

    def validation(self, steps: int) -> Record:
        """Returns the figures of the validation after `steps` steps."""
        return metrics.of_validation(self._attempts(steps))

    def validation_lines(self) -> Iterator[Record]:
        """Yields the lines of validation.jsonl. Only the first and the last validation include
        conversations."""
        moments = self.validated_steps()
        for steps in moments:
            for done in self._attempts(steps):
                yield validation_row(steps, done, steps in (moments[0], moments[-1]))

    def _rollouts(self, prompt: int) -> list[RolledOut]:
        task = self.order.prompts.task(prompt)
        asked = [RolloutRequest(prompt, sample, task) for sample in range(self.order.recipe.rollouts.samples)]
        return [done for each in asked if (done := read_back(each, self.order.journal(each)))]

    def _attempts(self, steps: int) -> list[RolledOut]:
        """Returns all attempts of a validation, or [] if some are unfinished."""
        asked = [RolloutRequest(number, 0, task) for number, task in enumerate(self.order.held_out)]
        paths = [self.order.validation_journal(each, steps) for each in asked]
        found = [done for each, path in zip(asked, paths, strict=True) if (done := read_back(each, path))]
        return found if len(found) == len(asked) else []


def read_back(request: RolloutRequest, path: Path) -> RolledOut | None:
    """Returns a finished rollout from a journal, or None if the rollout is unfinished. Another process may be
    writing to the journal."""
    lines = list(read_journal(path)) if path.exists() else []
    return next((read_result(request, line) for line in lines if line["key"] == request.name), None)


def _whole_lines(path: Path) -> list[Record]:
    """Returns the complete lines of a file whose last line may be unfinished."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().split("\n")[:-1]]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[0-9]*") if path.is_dir())


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
