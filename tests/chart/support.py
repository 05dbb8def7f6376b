"""The chart as rendered by Helm, and tools that check it."""

import concurrent.futures
import functools
import json
import os
import pathlib
import re
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "keepsake"
VALUES = ROOT / "tests" / "chart" / "values"
EXAMPLES = CHART / "examples"
RELEASE = "tests"
# This example is added to the values of an installation.
ADDED = {"sync-sidecar": EXAMPLES / "postgres.yaml"}
# Every set of values: the files that are merged.
SETS = [
    [*([ADDED[path.stem]] if path.stem in ADDED else []), path]
    for path in sorted([*VALUES.glob("*.yaml"), *EXAMPLES.glob("*.yaml")])
]

# The metrics that docs/observability.md lists, each with its labels.
METRICS = {
    name: set(re.findall(r"`([a-z_]+)`", labels))
    for name, labels in re.findall(
        r"^\| `(keepsake_[a-z_]+)` \|[^|]*\|([^|]*)\|", (ROOT / "docs" / "observability.md").read_text(), re.MULTILINE
    )
}
# Labels that a scrape adds, and those of histograms.
LABELS_OF_SCRAPES = {"namespace", "instance", "le"}


def tool(variable):
    """The program that a variable of tests/run names."""
    path = os.environ.get(variable, "")
    assert path, f"{variable} is not set: run ./tests/run"
    return path


def run(*command):
    """Runs a program; returns its exit code and output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def helm(*arguments):
    """Runs Helm without any user configuration."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home}
        done = subprocess.run(
            [tool("KEEPSAKE_TEST_HELM"), *arguments], capture_output=True, text=True, env=environment, timeout=120
        )
    return done.returncode, done.stdout, done.stderr


def at_once(work, items):
    """The results of work on each item, several at a time: most of it is waiting."""
    with concurrent.futures.ThreadPoolExecutor(8) as workers:
        return list(workers.map(work, items))


def given(files):
    """The arguments that give files of values to Helm."""
    return [argument for file in files for argument in ("--values", str(file))]


def merged(files):
    """The values of a set. Its files have no section in common."""
    values = {}
    for file in files:
        values |= yaml.safe_load(file.read_text())
    return values


@functools.cache
def render(*arguments, release=RELEASE):
    """The manifests of a release, which must render."""
    code, manifests, said = helm("template", release, str(CHART), "--namespace", "memory", *arguments)
    assert code == 0, said
    return manifests


def notes(release, *arguments):
    """What an installation prints for people."""
    code, said, errors = helm("install", release, str(CHART), "--namespace", "memory", "--dry-run=client", *arguments)
    assert code == 0, errors
    return said.split("\nNOTES:\n", 1)[1]


def objects(manifests):
    """Each object of rendered manifests."""
    return [it for it in yaml.safe_load_all(manifests) if it]


def pods(manifests):
    """Each pod's spec with the name of its owner."""
    found = []
    for it in objects(manifests):
        name = f"{it['kind']}/{it['metadata']['name']}"
        if it["kind"] == "Pod":
            found.append((name, it["spec"]))
        elif it["kind"] in ("Deployment", "Job"):
            found.append((name, it["spec"]["template"]["spec"]))
    return found


def queries():
    """Each query of the dashboard and the alerts, with where it is."""
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "5m").replace("$namespace", ".*")
            yield {"in": "dashboard", "name": panel["title"], "query": query}
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    for group in alerts["groups"]:
        for rule in group["rules"]:
            yield {"in": "alerts", "name": rule["alert"], "query": rule["expr"]}
