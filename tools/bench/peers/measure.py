"""Measures memories for agents that run in the process of their caller.

Each client is a thread (agentfs: a task; MCP: a server process of its own) that
sends its next call after the last answer. The operations are those of
`keepsake-bench --peers`: write, read, edit, a list of 100, on memories of 1 KB.
A peer is measured only with the operations and numbers of clients that it has.
"""

import argparse
import asyncio
import importlib.metadata
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time

PAGE = 100
STATES = ("state alpha", "state omega")
# Its `client` is the number of the client whose calls the thread sends.
this_thread = threading.local()


def content(state=0):
    """A text of 1 KB with one of two states."""
    return (STATES[state] + " the release is on tuesday after the tests passed\n" * 30)[:1024]


class LocalFiles:
    name = "SDK's local memory tool"
    called = "in process (Python), files"
    flush = "is in a file and flushed, as the SDK does it"
    package = "anthropic"

    def __init__(self, options, clients):
        from anthropic.lib.tools import _beta_builtin_memory_tool as builtin
        from anthropic.types import beta

        self.types = beta
        self.tool = builtin.BetaLocalFilesystemMemoryTool(str(options.folder / "files"))

    def write(self, path):
        command = self.types.BetaMemoryTool20250818CreateCommand
        self.tool.create(command(command="create", path=f"/memories{path}", file_text=content()))

    def read(self, path):
        command = self.types.BetaMemoryTool20250818ViewCommand
        assert STATES[0][:5] in self.tool.view(command(command="view", path=f"/memories{path}"))

    def edit(self, path, state):
        command = self.types.BetaMemoryTool20250818StrReplaceCommand
        self.tool.str_replace(
            command(command="str_replace", path=f"/memories{path}", old_str=STATES[state], new_str=STATES[1 - state])
        )

    def list(self, directory):
        command = self.types.BetaMemoryTool20250818ViewCommand
        assert self.tool.view(command(command="view", path=f"/memories{directory}")).count(".md") >= PAGE

    def close(self):
        pass


class LangGraph:
    """A store of LangGraph: a dictionary below a namespace and a key."""

    def write(self, path, state=0):
        directory, name = path.rsplit("/", 1)
        self.store.put((directory.strip("/"),), name, {"text": content(state)}, index=False)

    def read(self, path):
        directory, name = path.rsplit("/", 1)
        assert self.store.get((directory.strip("/"),), name).value["text"]

    def edit(self, path, state):
        # There is no edit: the value is read and put as a whole.
        self.read(path)
        self.write(path, 1 - state)

    def list(self, directory):
        assert len(self.store.search((directory.strip("/"),), limit=PAGE)) == PAGE

    def close(self):
        self.context.__exit__(None, None, None)


class LangGraphSqlite(LangGraph):
    name = "LangGraph SqliteStore"
    called = "in process (Python), SQLite"
    flush = "is committed and flushed (SQLite's default)"
    package = "langgraph-checkpoint-sqlite"

    def __init__(self, options, clients):
        from langgraph.store.sqlite import SqliteStore

        self.context = SqliteStore.from_conn_string(str(options.folder / f"langgraph-{clients}.db"))
        self.store = self.context.__enter__()
        self.store.setup()


class LangGraphPostgres(LangGraph):
    name = "LangGraph PostgresStore"
    called = "in process (Python), Postgres"
    flush = "is committed and flushed by Postgres"
    package = "langgraph-checkpoint-postgres"

    def __init__(self, options, clients):
        from langgraph.store.postgres import PostgresStore

        pool = {"min_size": clients, "max_size": clients}
        self.context = PostgresStore.from_conn_string(options.postgres_url, pool_config=pool)
        self.store = self.context.__enter__()
        self.store.setup()


class AgentFs:
    name = "agentfs"
    called = "in process (Python), SQLite (Turso)"
    flush = "is committed, with the defaults of Turso"
    package = "agentfs-sdk"

    def __init__(self, options, clients):
        from agentfs_sdk import AgentFS, AgentFSOptions

        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        path = str(options.folder / f"agentfs-{clients}.db")
        self.agent = self.wait(AgentFS.open(AgentFSOptions(path=path)))
        # One connection, which runs one call at a time.
        self.turn = asyncio.Lock()

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def _in_turn(self, *steps):
        async with self.turn:
            for step in steps:
                answer = await step()
            return answer

    def write(self, path, state=0):
        self.wait(self._in_turn(lambda: self.agent.fs.write_file(path, content(state))))

    def read(self, path):
        assert self.wait(self._in_turn(lambda: self.agent.fs.read_file(path)))

    def edit(self, path, state):
        read = lambda: self.agent.fs.read_file(path)
        self.wait(self._in_turn(read, lambda: self.agent.fs.write_file(path, content(1 - state))))

    def list(self, directory):
        assert len(self.wait(self._in_turn(lambda: self.agent.fs.readdir(directory)))) >= PAGE

    def close(self):
        self.wait(self.agent.close())
        self.loop.call_soon_threadsafe(self.loop.stop)


class McpServer:
    """An MCP server on stdio; each client has a process of its own."""

    def __init__(self, arguments, environment):
        self.process = subprocess.Popen(
            ["node", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        self.ids = itertools.count(1)
        self.send(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "bench", "version": "1"},
            },
        )
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method, params):
        identifier = next(self.ids)
        self.post({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == identifier and "method" not in answer:
                break
        assert "error" not in answer and not answer["result"].get("isError"), answer
        return answer["result"]

    def call(self, tool, **arguments):
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def end(self):
        self.process.kill()
        self.process.wait()


class Mcp:
    def __init__(self, options, clients):
        self.options = options
        self.servers = [self.start() for _ in range(clients)]

    @property
    def server(self):
        """The server of the client whose thread this is."""
        return self.servers[getattr(this_thread, "client", 0)]

    def close(self):
        for server in self.servers:
            server.end()


class McpFiles(Mcp):
    name = "MCP server-filesystem"
    called = "over stdio, a server process for each client"
    flush = "is in a file, not flushed"
    package = "@modelcontextprotocol/server-filesystem"

    def start(self):
        self.root = self.options.folder / "mcp-files"
        self.root.mkdir(parents=True, exist_ok=True)
        return McpServer([self.options.node_modules / self.package / "dist/index.js", self.root], {})

    def place(self, path):
        place = pathlib.Path(f"{self.root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        return str(place)

    def write(self, path):
        self.server.call("write_file", path=self.place(path), content=content())

    def read(self, path):
        self.server.call("read_text_file", path=self.place(path))

    def edit(self, path, state):
        edit = {"oldText": STATES[state], "newText": STATES[1 - state]}
        self.server.call("edit_file", path=self.place(path), edits=[edit])

    def list(self, directory):
        self.server.call("list_directory", path=f"{self.root}{directory}")


class McpGraph(Mcp):
    name = "MCP server-memory"
    called = "over stdio, one client: it writes its whole file each time"
    flush = "is in a file, not flushed"
    package = "@modelcontextprotocol/server-memory"
    most_clients = 1

    def start(self):
        file = self.options.folder / "graph.jsonl"
        return McpServer(
            [self.options.node_modules / self.package / "dist/index.js"], {"MEMORY_FILE_PATH": str(file)}
        )

    def write(self, path):
        entity = {"name": path, "entityType": "memory", "observations": [content()]}
        self.server.call("create_entities", entities=[entity])

    def read(self, path):
        self.server.call("open_nodes", names=[path])

    def search(self, words):
        self.server.call("search_nodes", query=words)


PEERS = [LocalFiles, LangGraphSqlite, LangGraphPostgres, AgentFs, McpFiles, McpGraph]


def version(peer, options):
    if peer.package.startswith("@"):
        package = json.loads((options.node_modules / peer.package / "package.json").read_text())
        return package["version"]
    return importlib.metadata.version(peer.package)


class Calls:
    """The calls of the clients of one peer; two clients never edit the same memory."""

    def __init__(self, peer, memories, clients):
        self.peer, self.memories, self.clients = peer, memories, clients
        self.created = itertools.count()
        self.states = [0] * memories

    def path(self, memory):
        return f"/d{memory // PAGE}/m{memory}.md"

    def seed(self):
        for memory in range(self.memories):
            self.peer.write(self.path(memory))

    def call(self, operation, client, step):
        memory = (client + self.clients * step) % (self.memories // self.clients * self.clients)
        if operation == "write":
            self.peer.write(f"/new/c{next(self.created)}.md")
        elif operation == "read":
            self.peer.read(self.path(memory))
        elif operation == "edit":
            self.peer.edit(self.path(memory), self.states[memory])
            self.states[memory] = 1 - self.states[memory]
        elif operation == "list":
            self.peer.list(f"/d{memory // PAGE}")
        else:
            self.peer.search("tuesday")


def measure_round(calls, operation, clients, warm_up, seconds):
    """The latencies of the calls that ended within the measured time."""
    begun = time.perf_counter()
    start, end = begun + warm_up, begun + warm_up + seconds
    seen, failures = [[] for _ in range(clients)], []

    def work(client):
        this_thread.client = client
        try:
            for step in itertools.count():
                before = time.perf_counter()
                calls.call(operation, client, step)
                after = time.perf_counter()
                if after >= end:
                    return
                if after >= start:
                    seen[client].append(after - before)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sorted(itertools.chain.from_iterable(seen))


def measure_peer(peer_class, options, clients):
    """The results of every operation of a peer with a number of clients."""
    peer = peer_class(options, clients)
    results = []
    try:
        calls = Calls(peer, options.memories, clients)
        calls.seed()
        for operation in ("read", "list", "search", "edit", "write"):
            if not hasattr(peer, operation):
                continue
            rounds = []
            latencies = []
            for _ in range(options.rounds):
                seen = measure_round(calls, operation, clients, options.warm_up, options.measure)
                rounds.append(len(seen) / options.measure)
                latencies.extend(seen)
            latencies.sort()
            if not latencies:
                raise RuntimeError(f"{peer.name}: no {operation} ended in time")
            quantile = lambda share: latencies[min(int(len(latencies) * share), len(latencies) - 1)] * 1e3
            results.append(
                {
                    "peer": peer.name,
                    "operation": operation,
                    "clients": clients,
                    "requests_per_second": round(statistics.median(rounds), 1),
                    "p50_ms": quantile(0.5),
                    "p99_ms": quantile(0.99),
                    "rounds": rounds,
                }
            )
            print(f"peers: {peer.name}, {operation}, {clients} clients: {rounds[-1]:.0f}/s", file=sys.stderr)
    finally:
        peer.close()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="a new folder for the peers' data")
    parser.add_argument("--node-modules", type=pathlib.Path, required=True)
    parser.add_argument("--postgres-url", required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--clients", default="1,16,32", help="numbers of clients")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds of load before each round")
    parser.add_argument("--measure", type=float, default=1, help="seconds of each round")
    parser.add_argument("--quick", action="store_true", help="very short rounds, 1 and 2 clients")
    options = parser.parse_args()
    options.rounds = 2 if options.quick else 5
    if options.quick:
        options.warm_up, options.measure, options.clients = 0.05, 0.5, "1,2"
    options.memories = 100 if options.quick else 1000
    numbers = [int(number) for number in options.clients.split(",")]
    results, peers = [], []
    for peer in PEERS:
        for clients in numbers:
            if clients > getattr(peer, "most_clients", clients):
                continue
            options.folder.mkdir(parents=True)
            try:
                results.extend(measure_peer(peer, options, clients))
            finally:
                shutil.rmtree(options.folder)
        described = {"name": peer.name, "version": version(peer, options), "called": peer.called, "flush": peer.flush}
        peers.append(described)
    options.json.write_text(json.dumps({"peers": peers, "results": results}, indent=2))


if __name__ == "__main__":
    main()
