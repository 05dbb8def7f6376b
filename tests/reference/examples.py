"""Checks and runs every example of `/docs`.

    examples.py FOLDER

The server is KEEPSAKE_BASE_URL, its key KEEPSAKE_API_KEY. Python examples must have
arguments that the SDK accepts, and all examples for curl and Python must succeed
with the ids of real objects. The examples for TypeScript are written to FOLDER with
such ids; they are compiled and run from there.
"""

import ast
import contextlib
import html.parser
import inspect
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import anthropic

URL = os.environ["KEEPSAKE_BASE_URL"]
KEY = os.environ["KEEPSAKE_API_KEY"]

# Seconds after which an example that follows a stream has shown that it works.
STREAM_SECONDS = "2"
# It is 404 unless the server has an issuer, and this one has none.
NOT_RUN = {"mcp.protected_resource"}
# They need a store that is empty, or not yet attached.
OF_OTHER_STORE = {"memory_stores.import", "sessions.resources.add"}
# They would find too many stores: one search reads at most 100.
OF_ALL_STORES = {"memory_stores.search"}


class Examples(html.parser.HTMLParser):
    """The examples by operation and language."""

    def __init__(self):
        super().__init__()
        self.found = {}
        self.operation = self.language = None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        classes = (attributes.get("class") or "").split()
        if tag == "article" and "operation" in classes:
            self.operation = attributes["id"]
        if tag == "pre" and classes[0] == "code" and len(classes) == 2:
            self.language = classes[1]
            self.found.setdefault(self.operation, {})[self.language] = ""

    def handle_endtag(self, tag):
        if tag == "pre":
            self.language = None

    def handle_data(self, data):
        if self.language:
            self.found[self.operation][self.language] += data


def call(method, path, body=None):
    request = urllib.request.Request(URL + path, method=method, headers={"x-api-key": KEY})
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def objects(operation):
    """Objects of one example's own: ids by prefix, and the environment."""
    store = call("POST", "/v1/memory_stores", {"name": "of an example"})["id"]
    other = call("POST", "/v1/memory_stores", {"name": "empty"})["id"]
    memories = f"/v1/memory_stores/{store}/memories"
    memory = call("POST", memories, {"path": "/first.md", "content": "release day\n"})
    call("POST", f"{memories}/{memory['id']}", {"content": "another day\n"})
    if operation == "memory_stores.test":
        call("POST", memories, {"path": "/.keepsake/tests.yaml", "content": "tests:\n- max_files: 10\n"})
    attached = {"type": "memory_store", "memory_store_id": store}
    session = call("POST", "/v1/sessions", {"agent": "a", "environment_id": "e", "resources": [attached]})
    key = call("POST", "/v1/api_keys", {"name": "of an example", "scopes": ["memory:read"]})
    erasure = call("POST", "/v1/erasures", {"memory_store_id": call("POST", "/v1/memory_stores", {"name": "x"})["id"]})
    ids = [
        other if operation in OF_OTHER_STORE else store,
        memory["id"],
        memory["memory_version_id"],
        session["id"],
        session["resources"][0]["id"],
        key["id"],
        erasure["id"],
    ]
    if operation in ("memory_stores.retrieve_undo", "memory_stores.cancel_undo"):
        # Only an undo of more than 500 memories has an id.
        for part in range(2):
            create = {"type": "create", "content": ""}
            operations = [{**create, "path": f"/many/{part}/{number}"} for number in range(251)]
            call("POST", f"{memories}/batch?memories=false", {"operations": operations})
        ids.append(call("POST", f"/v1/memory_stores/{store}/undo", {"path_prefix": "/many/"})["id"])
    environment = {
        "KEEPSAKE_URL": URL,
        "KEEPSAKE_API_KEY": KEY,
        "KEEPSAKE_SESSION_TOKEN": session["token"],
    }
    if operation in OF_ALL_STORES:
        of_store = {"name": "of a store", "scopes": ["memory:read"], "memory_store_ids": [store]}
        environment["KEEPSAKE_API_KEY"] = call("POST", "/v1/api_keys", of_store)["api_key"]
    return {one.split("_")[0]: one for one in ids}, environment


def with_ids(text, ids):
    return re.sub(r"\b([a-z]+)_01KAK5R2M0E9V7Q3C4D8X6Y1ZT", lambda match: ids[match[1]], text)


def check_arguments(operation, tree):
    """Every call of the SDK has the arguments that its method takes."""
    client = anthropic.Anthropic(api_key="none")
    for node in ast.walk(tree):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if name.startswith("client.beta."):
            method = client
            for part in name.split(".")[1:]:
                method = getattr(method, part)
            arguments = [ast.literal_eval(argument) for argument in node.args]
            named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            try:
                inspect.signature(method).bind(*arguments, **named)
            except TypeError as error:
                raise AssertionError(f"{operation}: {name}: {error}") from error


def follows_stream(operation):
    return operation.endswith(".stream")


def run_curl(operation, text, environment, home):
    # Without these options curl succeeds whatever the answer is.
    (home / ".curlrc").write_text("fail\nsilent\nshow-error\n")
    subprocess.run(["bash", "-n", "-c", text], check=True)
    command = ["bash", "-e", "-c", text]
    if follows_stream(operation):
        # 124 says that it was still running.
        command = ["bash", "-c", 'timeout "$@" || [ $? = 124 ]', "bash", STREAM_SECONDS, *command]
    environment = {**os.environ, **environment, "CURL_HOME": str(home)}
    subprocess.run(command, env=environment, check=True, capture_output=True)


def run_python(text, environment):
    os.environ.update(environment)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, "example", "exec"), {"__name__": "__main__"})


def main(folder):
    # Some examples write a file.
    os.chdir(folder)
    examples = Examples()
    with urllib.request.urlopen(URL + "/docs") as response:
        examples.feed(response.read().decode())
    assert len(examples.found) > 50, examples.found.keys()
    for operation, texts in examples.found.items():
        assert set(texts) == {"curl", "python", "typescript"}, operation
        check_arguments(operation, ast.parse(texts["python"], operation))
        environments = {}
        for language, text in texts.items():
            ids, environments[language] = objects(operation)
            texts[language] = with_ids(text, ids)
        try:
            if operation not in NOT_RUN:
                run_curl(operation, texts["curl"], environments["curl"], folder)
            # The others would not end.
            if operation not in NOT_RUN and not follows_stream(operation):
                run_python(texts["python"], environments["python"])
                (folder / f"{operation}.json").write_text(json.dumps(environments["typescript"]))
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"{operation}: {error.stderr.decode()}\n{texts['curl']}") from error
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{operation}: {error}\n{texts['python']}") from error
        (folder / f"{operation}.ts").write_text(texts["typescript"] + "\n")
    print(f"{len(examples.found)} operations")


main(pathlib.Path(sys.argv[1]))
