"""Prints the bill of materials (CycloneDX) of the program: the crates that it is built from."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

TARGET = "x86_64-unknown-linux-gnu"


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments, "--locked"], check=True, stdout=subprocess.PIPE, text=True).stdout


def built_with(*kinds):
    """The names and versions of the crates that dependencies of these kinds bring, as cargo builds them."""
    tree = cargo("tree", "--package=keepsake", f"--target={TARGET}", f"--edges={','.join(kinds)}", "--prefix=none")
    return set(re.findall(r"^(\S+) v(\S+)", tree, re.MULTILINE))


def component(package):
    name, version = key = package["name"], package["version"]
    about = {
        "type": "application" if name == "keepsake" else "library",
        "bom-ref": ref(key),
        "name": name,
        "version": version,
        "description": " ".join((package["description"] or "").split()),
        "scope": "required" if key in linked else "excluded",
        "hashes": [{"alg": "SHA-256", "content": hashes[key]}] if key in hashes else [],
        # Old crates have a slash between licences.
        "licenses": [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}] if package["license"] else [],
        "purl": ref(key),
        "externalReferences": [{"type": "vcs", "url": package["repository"]}] if package["repository"] else [],
    }
    return {field: value for field, value in about.items() if value}


def ref(key):
    return "pkg:cargo/{}@{}".format(*key)


linked, built = built_with("normal"), built_with("normal", "build")
metadata = json.loads(cargo("metadata", "--format-version=1", f"--filter-platform={TARGET}"))
packages = {package["id"]: package for package in metadata["packages"]}
keys = {id: (package["name"], package["version"]) for id, package in packages.items()}
entry = r'^name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(.*)"$'
lock = re.findall(entry, Path("Cargo.lock").read_text(), re.MULTILINE)
hashes = {(name, version): content for name, version, content in lock}
# `cargo metadata` also names crates that only features which are off would bring.
nodes = [node for node in metadata["resolve"]["nodes"] if keys[node["id"]] in built]
nodes.sort(key=lambda node: keys[node["id"]])
components = [component(packages[node["id"]]) for node in nodes]


def depends_on(node):
    used = (dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"]))
    return sorted({ref(keys[id]) for id in used if keys[id] in built})


print(
    json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))),
                "component": next(each for each in components if each["name"] == "keepsake"),
                "properties": [{"name": "cdx:rustc:sbom:target:triple", "value": TARGET}],
            },
            "components": [each for each in components if each["name"] != "keepsake"],
            "dependencies": [{"ref": ref(keys[node["id"]]), "dependsOn": depends_on(node)} for node in nodes],
        },
        indent=1,
        ensure_ascii=False,
    )
)
