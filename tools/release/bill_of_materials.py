"""Prints the bill of materials (CycloneDX) of a release: the crates that the program is built from, and the model of the
image. Its argument is a program of this release that runs here."""

import json
import os
import re
import subprocess
import sys
import tempfile
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


def model():
    """The model for search by meaning, as the program describes it: it is in the image, not in the program."""
    with tempfile.TemporaryDirectory() as folder:
        status = [sys.argv[1], "model", "status", f"--data-dir={folder}", "--output=json"]
        known = json.loads(subprocess.run(status, check=True, stdout=subprocess.PIPE, text=True).stdout)
    package = known["package"]
    purl = f"pkg:pypi/{package['name']}@{package['version']}"
    return {
        "type": "machine-learning-model",
        "bom-ref": purl,
        "name": known["name"],
        "version": known["version"],
        "description": f"Converted from {package['file']} by `keepsake model install`; in the image",
        "scope": "optional",
        "hashes": [{"alg": "SHA-256", "content": package["sha256"]}],
        "licenses": [{"expression": known["licence"]}],
        "purl": purl,
        "externalReferences": [{"type": "vcs", "url": known["source"]}],
    }


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
            "components": [*(each for each in components if each["name"] != "keepsake"), model()],
            "dependencies": [{"ref": ref(keys[node["id"]]), "dependsOn": depends_on(node)} for node in nodes],
        },
        indent=1,
        ensure_ascii=False,
    )
)
