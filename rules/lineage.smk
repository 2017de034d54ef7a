"""The inputs, outputs and parameters of rules, from the graph in swelab/lineage. No rules.

in:  KINDS, and the recipes that wildcards name
out: `**needs(kind)`, `**made(kind)`, `**slices(kind)` for a rule's input, output and params
"""


def at(function):
    """Converts a function of lineage's Wildcards to one of Snakemake's. A recipe's fault gives one line."""

    def found(wildcards):
        try:
            return function(Wildcards(dict(wildcards.items())))
        except Fault as fault:  # Snakemake would show a traceback
            print(f"error: {fault}", file=sys.stderr)
            sys.exit(2)

    return found


def needs(kind):
    """Returns the inputs of a kind of artifact, by role. For recipes only the content counts, not the date."""

    def undated(paths):
        return [
            ancient(path) if path.startswith("configs/") else path for path in paths
        ]

    def need(role, given):
        if not isinstance(given, str):
            return at(lambda wildcards: undated(given(wildcards)))
        path = pattern(given)
        dated = role not in KINDS[kind].undated and not path.startswith("configs/")
        return path if dated else ancient(path)

    return {role: need(role, given) for role, given in KINDS[kind].needs.items()}


def made(kind, *roles):
    """Returns a kind's files by role: all, or only those of `roles`. A paid file stays until its next version is
    complete."""
    found = {role: KINDS[kind].files[role] for role in roles or KINDS[kind].files}
    found = {
        role: path if os.path.splitext(path)[1] else directory(path)
        for role, path in found.items()
    }
    return {
        role: update(path) if KINDS[kind].paid else path for role, path in found.items()
    }


def slices(kind):
    """Returns the parts of recipes on which a kind depends, by name."""
    return {name: at(part) for name, part in KINDS[kind].params.items()}


def settings(kind):
    """Returns a function from wildcards to their recipe of a kind, checked and with defaults."""
    return at(lambda wildcards: wildcards.recipe(kind))


policy_settings = settings(kinds.POLICY)
model_settings = settings(kinds.MODEL)
sft_settings = settings(kinds.SFT)
rl_settings = settings(kinds.RL)


def sandbox_image(wildcards):
    """Record of the sandbox image if the backend needs it for tasks without an image of their own; otherwise
    none."""
    whole = parts_of(wildcards.subset)[-1]
    made_here = recipes.load_named(kinds.SUBSET, whole).source != "dataset"
    needed = BACKENDS[SETTINGS.backend].needs_image and made_here
    return ancient(pattern("sandbox_image")) if needed else []


def scored_by_this_run(wildcards):
    """Tasks that this run's experiment scores, if it trains or scores this SFT recipe; otherwise none."""
    names = EXPERIMENT.benchmarks if wildcards.sft in sft_recipes(EXPERIMENT) else []
    return RUN.each("tasks", names)


@at
def kept_from_rl(wildcards):
    """Tasks on which a recipe of reinforcement learning may not be trained: the tasks of its validation and,
    if this run's experiment scores weights of this recipe, the tasks that it scores."""
    names = (
        EXPERIMENT.benchmarks if wildcards.names["rl"] in rl_recipes(EXPERIMENT) else []
    )
    return RUN.each("tasks", [*wildcards.recipe(kinds.RL).held_out, *names])
