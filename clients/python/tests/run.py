"""Builds the wheel twice, and tests the package as it is installed from it.

Runs with a Python that has the packages which tests/run names: the SDK, `build`,
hatchling, `mcp` and pyright. The suite needs KEEPSAKE_BASE_URL, KEEPSAKE_API_KEY and
KEEPSAKE_WORKSPACE_ID, and KEEPSAKE_CONFORMANCE_TENANTS, which test_conformance.py
explains.

    python tests/run.py check     the wheel is reproducible, and typed
    python tests/run.py suite     the tests
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = PACKAGE.parent.parent


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL, **options)


def wheel(folder):
    """Builds the wheel of a copy of the sources, so that these stay as they are."""
    source = folder / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
    run(*build, env=environment, stdout=subprocess.DEVNULL)
    [made] = folder.glob("*.whl")
    return made


def check(work, site, made):
    again = work / "again"
    again.mkdir()
    assert made.read_bytes() == wheel(again).read_bytes(), "two wheels of the same files differ"
    version = re.search(r'(?m)^version = "(.+)"$', (REPOSITORY / "Cargo.toml").read_text())[1]
    assert f"-{version}-" in made.name, f"{made.name} is not of version {version}"
    assert (site / "keepsake_memory" / "py.typed").exists()
    # The tests are not typed; the examples are what users write.
    examples = shutil.copytree(PACKAGE / "examples", work / "typed" / "examples")
    shutil.copy(PACKAGE / "pyproject.toml", examples.parent)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for folder in (PACKAGE, examples.parent):
        run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", folder, env=environment, cwd=work)


def main(part):
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        first, site = work / "first", work / "site"
        first.mkdir()
        made = wheel(first)
        with zipfile.ZipFile(made) as archive:
            archive.extractall(site)
        if part == "check":
            return check(work, site, made)
        paths = [site, REPOSITORY / "tests" / "sdk"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        suite = (sys.executable, "-B", "-m", "unittest", "discover", "--verbose", "-s", PACKAGE / "tests")
        run(*suite, env=environment, cwd=work)


if __name__ == "__main__":
    main(*sys.argv[1:])
