"""Prints the variables of the compose file's Keepsake, as they are by default."""

import json
import re

import yaml

import support

services = yaml.safe_load((support.ROOT / "deploy" / "compose.yaml").read_text())["services"]
variables = services["gateway"]["environment"]
print(json.dumps({name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in variables.items()}))
