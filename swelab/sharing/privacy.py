"""Finds and replaces private content: keys, and paths with this machine's folders and user."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swelab.files.hf_hub import hub_token

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""Names of environment variables that hold a secret."""
SHAPES = re.compile(
    r"sk-[A-Za-z0-9_-]{32,}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{36,}|AKIA[0-9A-Z]{16}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Matches keys by their form."""
LEAST = 8
"""Minimum length of a secret; shorter values are words like `none`."""
PLAIN = (Path("/"), Path("/root"), Path("/home"), Path("/tmp"), Path("/usr"), Path("/usr/local"))
"""Folders that exist on every machine and in every sandbox, so that they reveal nothing."""


@dataclass
class Private:
    """words: private word -> its replacement. met: how often each replacement was used."""

    words: Mapping[str, str]
    met: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> "Private":
        """The private words of the clone in `root`, of the user, and of this environment."""
        values = [value for name, value in os.environ.items() if SECRET.search(name)] + [hub_token()]
        keys = {value: "[key]" for value in map(str.strip, values) if len(value) >= LEAST and value[0] != "/"}
        folders = [root.absolute(), root.resolve(), Path.home(), Path(sys.prefix)]
        paths = {str(folder): "[path]" for folder in folders if folder not in PLAIN}
        return cls(dict(sorted({**paths, **keys}.items(), key=lambda each: -len(each[0]))))

    def secret_in(self, text: str, shapes: bool = True) -> str:
        """Names the kind of private content in a text: "a key", "a path of this machine", or "".

        shapes: also look for keys of other environments, by their form.
        """
        stand_in = next((stand_in for word, stand_in in self.words.items() if word in text), "")
        if shapes and not stand_in and SHAPES.search(text):
            stand_in = "[key]"
        return {"[key]": "a key", "[path]": "a path of this machine"}.get(stand_in, "")

    def clean(self, text: str) -> str:
        """Replaces private words in a text by `[key]` and `[path]`."""
        for word, stand_in in self.words.items():
            if count := text.count(word):
                self.met[stand_in] = self.met.get(stand_in, 0) + count
                text = text.replace(word, stand_in)
        text, count = SHAPES.subn("[key]", text)
        if count:
            self.met["[key]"] = self.met.get("[key]", 0) + count
        return text
