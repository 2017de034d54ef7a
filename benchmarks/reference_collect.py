"""Runs swesmith's collect_trajs unchanged and measures its time, in an environment with swesmith.

    python benchmarks/reference_collect.py --system-prompt C.yaml --traj-dir T --eval-dir E --out-dir O

When swesmith 0.0.9 is imported, it reads `agent/swesmith_infer.yaml` next to its package. Its wheel lacks the
file, so this program provides C.yaml instead. The last line of output is {"seconds": of its main function,
"import_seconds", "peak_mb"}.
"""

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system-prompt", type=Path, required=True)
    parser.add_argument("--traj-dir", type=Path, required=True)
    parser.add_argument("--eval-dir", type=Path, required=True)
    parser.add_argument("--style", nargs="+", default=["xml"])
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=6)
    args = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "agent").mkdir()
        shutil.copy(args.system_prompt, Path(folder) / "agent" / "swesmith_infer.yaml")
        import swesmith

        swesmith.REPO_DIR = Path(folder)
        from swesmith.train.traj_mgr import collect_trajs
    imported = time.perf_counter()
    for style in args.style:
        collect_trajs.main(args.out_dir, args.traj_dir, args.eval_dir, style, args.workers)
    figures = {
        "seconds": time.perf_counter() - imported,
        "import_seconds": imported - start,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
