"""The documentation names one Claude model, in one place, and the SDK knows it as current.

Run with the repository's root; ends with 1 and says what is wrong otherwise.
"""

import pathlib
import re
import sys
import typing

from anthropic.resources.messages.messages import DEPRECATED_MODELS
from anthropic.types import Model

MODEL_NAME = re.compile(r"claude-[a-z]+-[0-9][a-z0-9-]*")


def known_models():
    literals = next(each for each in typing.get_args(Model) if typing.get_origin(each) is typing.Literal)
    return typing.get_args(literals)


def main(root):
    folders = ("docs/**/*.md", "deploy/**/*", "helm/**/*", "clients/*/README.md", "clients/*/examples/*")
    files = sorted([root / "README.md", *(file for folder in folders for file in root.glob(folder))])
    named = [
        (file.relative_to(root).as_posix(), name)
        for file in files
        if file.is_file()
        for name in MODEL_NAME.findall(file.read_text())
    ]
    if len(named) != 1:
        return f"one place must name a model, these do: {named}"
    [(file, name)] = named
    if name in DEPRECATED_MODELS:
        return f"{file}: {name} is retired on {DEPRECATED_MODELS[name]}: name a current model"
    if name not in known_models():
        return f"{file}: the SDK does not know {name}"
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
