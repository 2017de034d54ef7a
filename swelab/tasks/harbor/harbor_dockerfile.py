"""Finds the base image in a task folder's Dockerfile.
Refuses a Dockerfile whose other instructions may change the tests' results."""

import re

from swelab.files.text_lines import lines_of
from swelab.tasks.harbor.harbor_folder import Refused

START = "/swelab-start"
"""A folder in the image during the build, with the files of `image_history.start_files`."""
_IDLE = ("WORKDIR", "LABEL", "ENTRYPOINT", "CMD", "MAINTAINER", "STOPSIGNAL", "EXPOSE")
_COMMANDS = re.compile(
    r"set -[a-z]+(?: pipefail)?|true|mkdir -p [\w/. -]+|command -v [\w-]+|which [\w-]+|echo [^$`<>|&]*"
    r"|(?:apt-get|apt) (?:-\S+ )*(?:update|install|clean)\b[^$`<>|&]*|rm -rf /var/lib/apt/lists/\*"
    r"|curl -\S+ https://astral\.sh/uv/[\w./]*install\.sh \| (?:ba)?sh"
    r"|git config --(?:global|system) [\w.]+ \S+|bash /swelab-start/(?:scrub|prepare)\.sh[\w '.+/-]*"
)
"""Commands allowed in a RUN line.
They install tools for verifiers and agents, or are commands that our export writes."""


def image_of(dockerfile: str, alone: bool = False) -> str:
    """Returns the image on which a Dockerfile is based.

    Raises Refused if the Dockerfile names no image, or has instructions that may change the tests' results.
    alone: refuse every RUN and WORKDIR, because a script that judges may need their effects.
    """
    image = ""
    for line in _lines(dockerfile):
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM":
            parts = [part for part in rest.split() if not part.startswith("--")]
            if image or not parts or "$" in rest or parts[0] == "scratch":
                raise Refused("an image that has to be built", line)
            image = parts[0]
        elif not _is_idle(word, rest) or (alone and word in ("RUN", "WORKDIR")):
            raise Refused("an image that has to be built", line)
    if not image:
        raise Refused("no image", "the Dockerfile has no FROM")
    return image


def _is_idle(word: str, rest: str) -> bool:
    """Returns whether an instruction changes neither the repository nor anything that its tests need."""
    if word == "RUN":
        return all(_COMMANDS.fullmatch(each) for each in _commands(rest))
    return word in _IDLE or (word, rest) in (("USER", "root"), ("USER", "0"), ("COPY", f"start {START}"))


def _lines(dockerfile: str) -> list[str]:
    """Returns the instructions, each in one line."""
    kept = [line for line in lines_of(dockerfile) if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\s*\n", " ", "\n".join(kept))
    return [" ".join(line.split()) for line in lines_of(joined) if line.strip()]


def _commands(text: str) -> list[str]:
    """Returns the commands of a RUN line."""
    parts = re.split(r"&&|\|\||;", text.replace("(", " ").replace(")", " "))
    bare = (re.sub(r"\s*\d?(?:>>?\s*/dev/null|>&\d)", "", part).strip() for part in parts)
    return [part for part in bare if part]
