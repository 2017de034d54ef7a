"""Finds and replaces private content: API keys, and paths that contain this machine's folders or the user's
home."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swelab.files.hf_hub import hub_token

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""Matches the names of environment variables whose values are secret."""
SHAPES = re.compile(
    r"sk-[A-Za-z0-9_-]{32,}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{36,}|AKIA[0-9A-Z]{16}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Matches API keys and private keys by their format."""
LEAST = 8
"""Minimum length of a secret value. Shorter values are usually words like `none`."""
PLAIN = (Path("/"), Path("/root"), Path("/home"), Path("/tmp"), Path("/usr"), Path("/usr/local"))
"""Folders that exist on every machine and in every sandbox. Their paths are not private."""


@dataclass
class Private:
    """Replaces private words. words: maps each private word to its replacement. met: counts how often each
    replacement was used."""

    words: Mapping[str, str]
    met: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> "Private":
        """Collects the private words: secret environment variables, the hub token, and the paths of the
        clone, the user's home and Python."""
        values = [value for name, value in os.environ.items() if SECRET.search(name)] + [hub_token()]
        keys = {value: "[key]" for value in map(str.strip, values) if len(value) >= LEAST and value[0] != "/"}
        folders = [root.absolute(), root.resolve(), Path.home(), Path(sys.prefix)]
        paths = {str(folder): "[path]" for folder in folders if folder not in PLAIN}
        return cls(dict(sorted({**paths, **keys}.items(), key=lambda each: -len(each[0]))))

    def secret_in(self, text: str, shapes: bool = True) -> str:
        """Returns the kind of private content in a text: "a key", "a path of this machine", or "". shapes:
        also detects keys that are not in this environment, by their format."""
        stand_in = next((stand_in for word, stand_in in self.words.items() if word in text), "")
        if shapes and not stand_in and SHAPES.search(text):
            stand_in = "[key]"
        return {"[key]": "a key", "[path]": "a path of this machine"}.get(stand_in, "")

    def clean(self, text: str) -> str:
        """Replaces private words and keys in a text by `[key]` and `[path]`."""
        for word, stand_in in self.words.items():
            if count := text.count(word):
                self.met[stand_in] = self.met.get(stand_in, 0) + count
                text = text.replace(word, stand_in)
        text, count = SHAPES.subn("[key]", text)
        if count:
            self.met["[key]"] = self.met.get("[key]", 0) + count
        return text
