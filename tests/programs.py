#!/usr/bin/env python3
"""Lists test programs: reads the JSON messages of a cargo build, and prints for each program its
package and target, the folder of its package and the file, between tabs. The target of unit tests
is `unit`, as in tests/parts.sh."""

import json
import pathlib
import sys


def test_programs(messages):
    """The package/target, folder and file of each test program that the messages name."""
    for it in messages:
        if it["reason"] == "compiler-artifact" and it["executable"] and it["profile"]["test"]:
            folder = pathlib.Path(it["manifest_path"]).parent
            package = "keepsake" if folder.name == "keepsake" else f"keepsake-{folder.name}"
            target = it["target"]["name"] if it["target"]["kind"] == ["test"] else "unit"
            yield f"{package}/{target}", folder, it["executable"]


def read_messages(lines):
    return (json.loads(line) for line in lines if line.startswith("{"))


if __name__ == "__main__":
    for program in test_programs(read_messages(sys.stdin)):
        print(*program, sep="\t")
