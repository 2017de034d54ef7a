"""Small task folders that are graded by their own script, and the image for them."""

import json
import subprocess
from dataclasses import replace

from swelab.records import write_json
from swelab.sandbox import Image

NAME = "lab/app:1"
TOML = f'schema_version = "1.4"\n[environment]\ndocker_image = "{NAME}"\n[verifier]\ntimeout_sec = 600\n'
APP = {
    "numbers.txt": "3\n4\n35\n",
    "greet.sh": 'echo "Good day, $2"\n',
    "shapes.py": "def area(a, b):\n    return a + b\n\n\ndef outline(a, b):\n    return a + b\n",
}
"""The working directory of the image, which is not a repository."""
JUDGED = """#!/bin/bash
{test}
[ $? = 0 ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
"""
SHARES = """import json, sys
sys.path.insert(0, ".")
import shapes
given = [shapes.area(2, 3) == 6, shapes.outline(2, 3) == 10]
json.dump({"area": int(given[0]), "outline": int(given[1])}, open("/logs/verifier/reward.json", "w"))
"""
MENDED = "def area(a, b):\n    return a * b\n\n\ndef outline(a, b):\n    return 2 * (a + b)\n"
TASKS = {
    "write-the-sum": {
        "instruction.md": "Write the sum of the numbers in numbers.txt, one a line, to sum.txt.\n",
        "tests/test.sh": JUDGED.format(test='[ "$(cat /app/sum.txt)" = "$(cat /tests/wanted)" ]'),
        "tests/wanted": "42\n",
        "solution/solve.sh": "cd /app; echo $(($(paste -sd+ numbers.txt))) >sum.txt\n",
    },
    "greet-by-name": {
        "instruction.md": "greet.sh NAME greets nobody. It should greet NAME.\n",
        "tests/test.sh": JUDGED.format(test='[ "$(bash greet.sh Ada)" = "Good day, Ada" ]'),
        "solution/solve.sh": "sed -i 's/[$]2/$1/' /app/greet.sh\n",
    },
    "mend-the-shapes": {
        "instruction.md": "In shapes.py area and outline of a rectangle are wrong.\n",
        "tests/test.sh": "#!/bin/sh\nexec python /tests/shares.py\n",
        "tests/shares.py": SHARES,
        "solution/solve.sh": "cp /solution/shapes.py /app/shapes.py\n",
        "solution/shapes.py": MENDED,
    },
}


def write(place, name, **changes):
    """Writes a task folder. A file whose content is None is left out."""
    for path, text in {"task.toml": TOML, **TASKS.get(name, {}), **changes}.items():
        if text is not None:
            (place / name / path).parent.mkdir(parents=True, exist_ok=True)
            (place / name / path).write_text(text)
    return place / name


def unpacked_image(image, place):
    """Unpacks the sandbox image with APP in /app."""
    root = place / "root"
    subprocess.run(["cp", "-a", image.folder, root], check=True)
    (root / "app").mkdir()
    for name, text in APP.items():
        (root / "app" / name).write_text(text)
    config = image.folder.with_name(f"{image.folder.name}.json")
    env = (json.loads(config.read_text()).get("config") or {}).get("Env") if config.is_file() else None
    write_json(root.with_name("root.json"), {"config": {"Env": env or [], "WorkingDir": "/app"}})
    return Image(NAME, "sha256:" + "7" * 64, root, "/app", for_scripts=True)


def in_engine(engine, image, lab):
    """Makes the same image in an engine, from the engine's sandbox image."""
    engine.docker("create", "--name", "filling-app", image.digest, "true")
    engine.docker("cp", f"{lab.folder}/app", "filling-app:/app")
    made = engine.docker("commit", "--change=WORKDIR /app", "filling-app")
    engine.docker("rm", "filling-app")
    return replace(lab, digest=made, folder=None)


def record(lab, path):
    """Writes the record of pulled images."""
    told = {"digest": lab.digest, "bytes": 1, "folder": str(lab.folder), "workdir": lab.workdir}
    told |= {"pulled": "2000-01-01T00:00:00Z", "checked": 1, "leaks": []}
    write_json(path, {"images": {NAME: told}, "failed": {}, "counts": {"named": 1}})
    return path
