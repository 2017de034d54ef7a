"""House rules that a program can check: import direction, sizes, one name for a rule and its script."""

import ast
import builtins
import functools
import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOUNDATION = set(
    "outcomes choices sampling_settings machine patience records configs console files jobs lineage".split()
)
MAY_USE = {
    "outcomes": {"outcomes"},
    "choices": {"choices"},
    "sampling_settings": {"sampling_settings"},
    "machine": {"machine"},
    "patience": {"patience"},
    "records": {"outcomes", "records"},
    "files": {"records", "console", "files", "patience"},
    "console": {"records", "console", "machine"},
    "jobs": {"records", "console", "files", "jobs"},
    "witness": {"records", "witness"},
    "lineage": {"records", "configs", "jobs", "lineage"},
    "checks": FOUNDATION | {"checks", "sandbox"},
    "cluster": FOUNDATION | {"checks", "cluster"},
    "http": {"records", "http"},
    "sandbox": {"choices", "records", "http", "patience", "sandbox"},
    "pool": FOUNDATION | {"http", "pool", "sandbox"},
    "images": FOUNDATION | {"images", "sandbox"},
    "models": FOUNDATION | {"checks", "cluster", "http", "models"},
    "tasks": FOUNDATION | {"tasks", "images", "models", "sandbox"},
    "agents": FOUNDATION | {"agents", "models", "sandbox"},
    "grading": FOUNDATION | {"grading", "images", "sandbox", "tasks", "witness"},
    "rollouts": FOUNDATION | {"agents", "images", "models", "rollouts", "sandbox", "tasks"},
    "evaluation": FOUNDATION
    | {"agents", "checks", "cluster", "evaluation", "grading", "images", "models"}
    | {"rollouts", "sandbox", "scores", "tasks"},
    "sft": FOUNDATION | {"checks", "cluster", "models", "rollouts", "sft", "tasks"},
    "rl": FOUNDATION
    | {"agents", "checks", "cluster", "grading", "models", "rl", "rollouts"}
    | {"sandbox", "scores", "sft", "tasks"},
    "service": FOUNDATION | {"service"},
    "sharing": FOUNDATION | {"evaluation", "grading", "scores", "sharing", "tasks"},
    "scores": FOUNDATION | {"grading", "rollouts", "scores", "tasks"},
}
TORCH_ROOMS = tuple(
    """
    swelab/sft/ swelab/rl/ swelab/models/serving/shims/
    benchmarks/rl.py benchmarks/memory.py benchmarks/serving.py
    """.split()
)
BY_HAND = """
evaluate publish write_prompts compose_recipes browse export_leaderboard export_harbor export_atif
import_harbor serve_fleet run_mini_swe_agent run_debug_gym serve reap exec_server pool_server pool doctor
collect_trajs measure_lengths combine_trajs validate_len_stats compare merge_preds run_evaluation
show run_torchtune verify write_schemas
""".split()
SHIPPED = [
    ROOT / line
    for line in subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
]
PYTHON = [path for path in SHIPPED if path.suffix == ".py" and path.exists()]
LIBRARY = [path for path in PYTHON if "tests" not in path.parts]


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def imports(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path):
    return path.relative_to(ROOT / "swelab").parts[0].removesuffix(".py")


def test_imports_point_downwards():
    wrong = []
    for path in LIBRARY:
        if not path.is_relative_to(ROOT / "swelab") or room(path) == "__init__":
            continue
        used = {name.split(".")[1] for name in imports(path) if name.startswith("swelab.")}
        if refused := used - MAY_USE.get(room(path), FOUNDATION):
            wrong.append(f"{path.relative_to(ROOT)} uses {sorted(refused)}")
    assert not wrong


def test_no_module_imports_itself_through_others():
    """Imports for types count too."""
    library = [path for path in LIBRARY if path.is_relative_to(ROOT / "swelab")]
    dotted = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in library}
    modules = {name.removesuffix(".__init__"): path for path, name in dotted.items()}
    graph = {}
    for name, path in modules.items():
        used = set(imports(path)) & set(modules)
        packages = {each.rpartition(".")[0] for each in used}  # from `from package import module`
        graph[name] = used - packages - {name}
    while free := [name for name, used in graph.items() if not used & set(graph)]:
        for name in free:
            del graph[name]
    assert not sorted(graph), "these import one another, or what does"


def test_torch_stays_where_models_are_trained():
    wrong = []
    for path in LIBRARY:
        heavy = {name.split(".")[0] for name in imports(path)} & {"torch", "torchtune", "transformers"}
        if heavy and not str(path.relative_to(ROOT)).startswith(TORCH_ROOMS):
            wrong.append(f"{path.relative_to(ROOT)} imports {sorted(heavy)}")
    assert not wrong


def test_scripts_know_no_script_and_no_workflow():
    for path in (ROOT / "scripts").glob("*.py"):
        names = list(imports(path))
        assert not any(name.startswith(("scripts", "snakemake")) for name in names), path
        assert len(path.read_text().splitlines()) <= 60, path


def test_sizes():
    long_modules = [p.name for p in LIBRARY if len(p.read_text().splitlines()) > 600]
    assert not long_modules
    long_functions = [
        f"{path.name}:{node.name} ({node.end_lineno - node.lineno + 1})"
        for path in LIBRARY
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 80
    ]
    assert not long_functions
    long_rules = [
        path.name
        for path in (ROOT / "rules").glob("*.smk")
        if len(re.sub(r'^ *""".*?"""$', "", path.read_text(), flags=re.M | re.S).splitlines()) > 150
    ]
    assert not long_rules


def test_the_test_of_a_module_is_found_by_its_path():
    """tests/unit mirrors swelab. A test of several modules has a name that no module has."""
    library = [path for path in LIBRARY if path.is_relative_to(ROOT / "swelab")]
    modules = {path.relative_to(ROOT / "swelab").with_suffix("") for path in library}
    names = {module.name for module in modules}
    for path in (ROOT / "tests/unit").rglob("test_*.py"):
        tested = path.relative_to(ROOT / "tests/unit").with_name(path.stem.removeprefix("test_"))
        assert tested in modules or tested.name not in names, f"{path}: swelab has no {tested}.py"


def test_a_file_s_name_occurs_once_in_the_house():
    """Exceptions are files of the same subject: a recipe kind and its parser, metrics of a training step."""
    found = Counter(path.name for path in LIBRARY if path.is_relative_to(ROOT / "swelab"))
    twice = {name for name, count in found.items() if count > 1}
    assert twice <= {"__init__.py", "experiment.py", "metrics.py"}


PARTICIPLES = set("found told asked kept said known held wanted made seen taken gone".split())
"""These words say when something happened, not what it is."""
LOCAL_LINES = 5
"""A local may have such a name if all its uses are within this number of lines."""
IRREGULAR = "left|lost|given|cut|sent|spent|written|shown|heard|paid|chosen|broken|drawn|taught|caught"
"""Participles without -ed."""
VERBS = {"embed", "feed", "need", "seed"}
OF_FILES = {
    ROOT / "swelab" / name
    for name in tuple(
        """
    grading/evidence.py grading/witness_store.py models/billing/paid_turns.py records/report_records.py
    records/task_records.py records/witness_records.py tasks/pass_rates.py
    """.split()
    )
}
"""Modules whose records are in users' files, so the fields keep their names."""


def named_things(tree):
    """Returns (line, name) of each function, class, argument, attribute, field and constant of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        if isinstance(node, ast.Module | ast.ClassDef):
            for each in node.body:
                for target in getattr(each, "targets", [getattr(each, "target", None)]):
                    if isinstance(target, ast.Name):
                        yield each.lineno, target.id


def functions_named_by_participles(tree):
    """Returns (line, name) of each function or plain class whose one-word name is a participle.

    Excludes properties and exceptions, whose names may be states.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.bases:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            states = any("property" in ast.unparse(each) for each in node.decorator_list)
            if not states and re.fullmatch(rf"_?(?:[a-z]+ed|{IRREGULAR})", node.name, re.IGNORECASE):
                yield node.lineno, node.name


def long_lived_locals(tree):
    """Returns (line, name) of each local of a function that is used over more than LOCAL_LINES lines."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            lines: dict[str, list[int]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Name):
                    lines.setdefault(node.id, []).append(node.lineno)
            yield from (
                (min(used), name) for name, used in lines.items() if max(used) - min(used) > LOCAL_LINES
            )


def test_names_say_what_a_thing_is():
    assert not [
        f"{path}:{line} {name}"
        for path in LIBRARY
        for line, name in [
            *(named_things(parsed(path)) if path not in OF_FILES else ()),
            *long_lived_locals(parsed(path)),
        ]
        if name.strip("_").lower() in PARTICIPLES
    ]


def test_functions_are_called_by_verbs_or_nouns():
    """Exceptions are modules inside a sandbox's process, whose names occur in the text of questions."""
    assert not [
        f"{path}:{line} {name}"
        for path in LIBRARY
        if "inside" not in path.parts
        for line, name in functions_named_by_participles(parsed(path))
        if name.strip("_").lower() not in VERBS
    ]


def test_no_group_is_repeated_possessively():
    """Python before 3.11.5, such as Debian 12's, misses matches of `(...)*+` (python/cpython#106052)."""
    repeat = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+(?!\+)")
    assert not [
        f"{path}:{node.lineno}"
        for path in LIBRARY
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and repeat.search(node.value)
    ]


def test_requests_are_repeated_by_patience_alone():
    """No other module reads Retry-After, loads a retry library, or sleeps in an exception handler."""
    polls = ("swelab/pool/pool.py", "swelab/rl/engines/verl_node.py", "swelab/sandbox/docker_engine.py")
    wrong = []
    for path in LIBRARY:
        name = str(path.relative_to(ROOT))
        if not name.startswith("swelab/") or name == "swelab/patience.py":
            continue
        libraries = {"tenacity", "backoff", "stamina"} & {each.split(".")[0] for each in imports(path)}
        if libraries or "retry-after" in path.read_text().lower():
            wrong.append(name)
        handlers = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ExceptHandler)]
        calls = [node for each in handlers for node in ast.walk(each) if isinstance(node, ast.Call)]
        if name not in polls and any("sleep" in ast.unparse(call.func) for call in calls):
            wrong.append(name)
    assert not wrong


def test_no_exception_is_frozen():
    """contextlib sets an exception's traceback, so a frozen exception would turn into another one."""
    known = {name for name, value in vars(builtins).items() if isinstance(value, type)}
    known = {name for name in known if issubclass(vars(builtins)[name], BaseException)}
    classes = [node for path in LIBRARY for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    parents = {each.name: {ast.unparse(base).rpartition(".")[2] for base in each.bases} for each in classes}
    while more := {name for name, bases in parents.items() if bases & known} - known:
        known |= more
    exceptions = [each for each in classes if each.name in known]
    assert len(exceptions) > 20
    assert not [
        each.name for each in exceptions if "frozen=True" in " ".join(map(ast.unparse, each.decorator_list))
    ]


def test_public_functions_have_docstrings():
    bare = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in LIBRARY
        if path.is_relative_to(ROOT / "swelab")
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not any(ast.unparse(each) == "overload" for each in node.decorator_list)
    ]
    assert not bare


def test_every_rule_has_its_script_log_and_contract():
    used = set()
    for path in sorted((ROOT / "rules").glob("*.smk")):
        text = path.read_text()
        assert text.startswith('"""'), f"{path.name} does not open with a sentence"
        for block in re.split(r"^rule ", text, flags=re.M)[1:]:
            name = block.partition(":")[0]
            assert f"scripts.{name} " in block, f"rule {name} does not call scripts.{name}"
            call = re.search(r"SWELAB_LOG=\{log:q\} python -m scripts\.(?:.*\\\n)*.*\n\s+\"\"\"", block)
            assert call, f"the script of rule {name} is not the last of its commands"
            assert f'"results/logs/{name}/' in block, f"rule {name} has no log of its own name"
            assert not re.search(r"^    (run|script|service):", block, flags=re.M)
            used.add(name)
    scripts = {path.stem for path in (ROOT / "scripts").glob("*.py")} - {"__init__", *BY_HAND}
    assert scripts == used


def test_files_that_documents_name_exist():
    named = re.compile(r"`((?:swelab|rules|scripts|tests|benchmarks|envs)/[\w/.-]+\.(?:py|smk|sh|txt))[`:]")
    missing = [
        f"{path.name}: {name}"
        for path in SHIPPED
        if path.suffix == ".md" and path.exists()
        for name in named.findall(path.read_text())
        if not (ROOT / name).exists()
    ]
    assert not missing


def test_files_that_the_plan_names_shortly_exist():
    """docs/architecture.md writes a neighbouring file without its folders."""
    text = (ROOT / "docs/architecture.md").read_text()
    short = set(re.findall(r"`(?:[\w-]+/)*([\w-]+\.(?:py|smk|css))`", text))
    assert len(short) > 90 and not sorted(short - {path.name for path in SHIPPED if path.exists()})


def test_the_text_speaks_of_the_project_alone():
    forbidden = re.compile(
        r"/[w]ork/|/[t]mp/w/|[b]ash_jobs|\.[l]ibrary|pypi\.org|files\.pythonhosted|/root/\.pyenv"
    )
    for path in SHIPPED:
        if path.suffix in {".py", ".md", ".smk", ".yaml", ".txt", ".sh", ".html", ".toml", ".json", ""}:
            if not path.is_file():
                continue
            found = forbidden.search(path.read_text(errors="replace"))
            assert not found, f"{path.relative_to(ROOT)}: {found[0]}"
