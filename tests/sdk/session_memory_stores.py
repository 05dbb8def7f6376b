"""The Python SDK's sync of a session's memory stores with folders on disk.

`SessionMemoryStores` is what the SDK's worker runs beside an agent: it lays the
stores out as files and reconciles both sides. It works with the token of a real
session: one store that may be written, and one that may be read.
"""

import asyncio
import math
import tempfile
import unittest
from pathlib import Path

from anthropic.lib.tools._memories import MARKER_PATH, SessionMemoryStores

from support import BASE_URL, BYTES_PER_MEMORY, LOST, AsyncClient

LOGGER = "anthropic.lib.tools.agent_toolset"


class Mount:
    """One store of the session, and its folder."""

    def __init__(self, memories, store, root, access):
        self.memories = memories
        self.store = store
        self.root = root
        self.access = access

    def resource(self):
        return {"type": "memory_store", "memory_store_id": self.store.id, "access": self.access}

    def files(self):
        """The files in the folder, except the SDK's marker."""
        found = {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        found.pop(MARKER_PATH, None)
        return found

    def write(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())

    def remove(self, *names):
        for name in names:
            (self.root / name).unlink()

    async def create(self, name, content):
        return await self.memories.create(self.store.id, path=f"/{name}", content=content)

    async def listed(self, **options):
        found = [item async for item in self.memories.list(self.store.id, limit=100, **options)]
        return {item.path.removeprefix("/"): item for item in found}

    async def update(self, name, **changes):
        memory = (await self.listed())[name]
        return await self.memories.update(memory.id, memory_store_id=self.store.id, **changes)

    async def delete(self, name):
        memory = (await self.listed())[name]
        await self.memories.delete(memory.id, memory_store_id=self.store.id)

    async def held(self):
        """The server's content, by file name."""
        return {name: item.content.encode() for name, item in (await self.listed(view="full")).items()}


class SessionFacts(AsyncClient):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.own = await self.mount("own notes", "read_write")
        self.shared = await self.mount("shared", "read_only")

    async def mount(self, name, access):
        store = await self.new_store(name)
        return Mount(self.memories, store, self.folder / "mnt" / "memory" / name.replace(" ", "-"), access)

    async def begin(self, base_url=BASE_URL, **options):
        """Downloads both stores, with the session's token and nothing else."""
        made = await self.client.beta.sessions.create(
            agent="agent_1",
            environment_id="env_1",
            resources=[self.own.resource(), self.shared.resource()],
        )
        client = self.client_with(key=None, auth_token=made.token, base_url=base_url)
        found = await client.beta.sessions.retrieve(made.id)
        for resource, mount in zip(found.resources, [self.own, self.shared], strict=True):
            # Below a temporary folder of the test: a worker has its own file system.
            resource.mount_path = str(self.folder) + resource.mount_path
            self.assertEqual(resource.mount_path, str(mount.root))
        session = SessionMemoryStores(client, workdir=self.folder, **options)
        self.addAsyncCleanup(session.dispose)
        with self.assertNoLogs(LOGGER, "WARNING"):
            await session.download(found)
        return session

    async def sync(self, session, *warnings):
        """Runs a due sync, which must log exactly this warning."""
        session._last_sync = -math.inf
        await self.warned(session.sync_if_due, *warnings)

    async def warned(self, call, *warnings):
        if not warnings:
            with self.assertNoLogs(LOGGER, "WARNING"):
                await call()
            return
        with self.assertLogs(LOGGER, "WARNING") as logs:
            await call()
        self.assertEqual(len(logs.output), len(warnings), logs.output)
        for warning in warnings:
            self.assertTrue(any(warning in line for line in logs.output), (warning, logs.output))

    async def assert_agreed(self, *mounts):
        for mount in mounts or [self.own, self.shared]:
            self.assertEqual(mount.files(), await mount.held(), mount.store.name)

    async def version_count(self, mount):
        return len([version async for version in self.versions.list(mount.store.id, limit=100)])

    async def test_download_lays_out_every_memory(self):
        contents = {f"{n % 7}/{n:03}.md": f"{n}\n" * n for n in range(105)}
        contents |= {"empty": "", "ü/größe.md": "größer\r\n", "top.md": "no newline at the end"}
        contents |= {"\U0001f9e0": "\ufeffwith a mark"}
        limit = asyncio.Semaphore(8)

        async def create(name, content):
            async with limit:
                await self.own.create(name, content)

        await asyncio.gather(*(create(name, content) for name, content in contents.items()))
        await self.shared.create("rules.md", "Be kind.\n")
        session = await self.begin()
        self.assertEqual(self.own.files(), {name: content.encode() for name, content in contents.items()})
        self.assertEqual(self.shared.files(), {"rules.md": b"Be kind.\n"})
        self.assertEqual(session.roots, [self.own.root, self.shared.root])
        self.assertEqual(session.read_only_roots, [self.shared.root])
        # More than a page of names, and nothing to do.
        await self.sync(session)
        await self.assert_agreed()
        await session.dispose()
        self.assertFalse(self.own.root.exists() or self.shared.root.exists())

    async def test_sync_without_changes_transfers_no_content(self):
        await self.own.create("a", "1")
        await self.shared.create("b", "2")
        way = self.proxy()
        session = await self.begin(way.url)
        way.spoil()
        await session.sync_if_due()
        self.assertEqual(way.seen(), [], "the sync was not due")
        await self.sync(session)
        self.assertEqual(way.seen(), [("GET", 200)] * 2)

    async def test_edits_of_both_sides_are_synced(self):
        for name in ["edited here", "edited there", "gone there", "moved there", "untouched"]:
            await self.own.create(name, "first\n")
        await self.shared.create("edited there", "first\n")
        await self.shared.create("gone there", "first\n")
        session = await self.begin()
        self.own.write("edited here", "second, here\n")
        self.own.write("new/here/a", "new\n")
        self.own.write("new/here/empty", "")
        for mount in [self.own, self.shared]:
            await mount.update("edited there", content="second, there\n")
            await mount.delete("gone there")
            await mount.create("new there", "new\n")
        await self.own.update("moved there", path="/moved/there")
        await self.sync(session)
        await self.assert_agreed()
        self.assertEqual(
            self.own.files(),
            {
                "edited here": b"second, here\n",
                "edited there": b"second, there\n",
                "moved/there": b"first\n",
                "new there": b"new\n",
                "new/here/a": b"new\n",
                "new/here/empty": b"",
                "untouched": b"first\n",
            },
        )
        before = await self.version_count(self.own)
        await self.sync(session)
        self.assertEqual(await self.version_count(self.own), before)

    async def test_server_wins_edit_conflicts(self):
        await self.own.create("a", "first\n")
        session = await self.begin()
        self.own.write("a", "here\n")
        await self.own.update("a", content="there\n")
        self.own.write("b", "here\n")
        await self.own.create("b", "there\n")
        await self.sync(session, *["changed both locally and remotely; keeping the remote version"] * 2)
        self.assertEqual(self.own.files(), {"a": b"there\n", "b": b"there\n"})
        await self.assert_agreed()
        # The same bytes on both sides are no conflict.
        self.own.write("a", "same\n")
        await self.own.update("a", content="same\n")
        await self.sync(session)
        await self.assert_agreed()

    async def test_edit_that_loses_to_the_server_is_sent_once(self):
        await self.own.create("a", "first\n")
        way = self.proxy()
        session = await self.begin(way.url)
        self.own.write("a", "here\n")
        loop = asyncio.get_running_loop()

        def edit_there():
            edit = self.own.update("a", content="there\n")
            asyncio.run_coroutine_threadsafe(edit, loop).result()

        way.spoil(edit_there, method="POST")
        await self.sync(session, "the upload was refused and the local edit loses")
        self.assertEqual(way.seen("POST"), [("POST", 409)])
        await self.sync(session, "changed both locally and remotely; keeping the remote version")
        self.assertEqual(self.own.files(), {"a": b"there\n"})
        await self.assert_agreed()

    async def test_upload_with_a_lost_answer_is_recognised(self):
        await self.own.create("a", "first\n")
        way = self.proxy()
        session = await self.begin(way.url)
        self.own.write("a", "second\n")
        way.spoil(LOST, method="POST")
        await self.sync(session)
        self.assertEqual(way.seen("POST"), [("POST", 200), ("POST", 200)])
        # The retried create of a new file conflicts with itself.
        self.own.write("b", "new\n")
        way.spoil(LOST, method="POST")
        await self.sync(session, "failed to upload memory path=b")
        self.assertEqual(way.seen("POST"), [("POST", 200), ("POST", 409)])
        # A newer edit is uploaded over it without a conflict.
        self.own.write("b", "newer\n")
        await self.sync(session)
        self.assertEqual((await self.own.held())["b"], b"newer\n")
        await self.assert_agreed()
        self.assertEqual(await self.version_count(self.own), 4)

    async def test_local_deletion_is_applied_at_the_end(self):
        for name in ["a", "b", "kept"]:
            await self.own.create(name, f"{name}\n")
        session = await self.begin()
        self.own.remove("a", "b")
        await self.sync(session)
        self.assertEqual(set(await self.own.held()), {"a", "b", "kept"})
        # An edit on the server brings its file back.
        await self.own.update("b", content="edited there\n")
        await self.warned(session.finish, "deleted locally but changed remotely; restoring the remote version")
        self.assertEqual(self.own.files(), {"b": b"edited there\n", "kept": b"kept\n"})
        await self.assert_agreed()
        newest = await anext(aiter(self.versions.list(self.own.store.id)))
        self.assertEqual((newest.operation, newest.path), ("deleted", "/a"))

    async def test_deletion_that_loses_to_the_server_deletes_nothing(self):
        for name in ["a", "kept"]:
            await self.own.create(name, "first\n")
        way = self.proxy()
        session = await self.begin(way.url)
        self.own.remove("a")
        loop = asyncio.get_running_loop()

        def edit_there():
            edit = self.own.update("a", content="there\n")
            asyncio.run_coroutine_threadsafe(edit, loop).result()

        way.spoil(edit_there, method="DELETE")
        await self.warned(session.finish, "deleted locally but changed remotely; keeping the remote version")
        self.assertEqual(way.seen("DELETE"), [("DELETE", 409)])
        self.assertEqual((await self.own.held())["a"], b"there\n")

    async def test_edit_of_a_remotely_deleted_file_recreates_it(self):
        for name in ["a", "kept"]:
            await self.own.create(name, "first\n")
        session = await self.begin()
        await self.own.delete("a")
        self.own.write("a", "edited here\n")
        await self.sync(session)
        self.assertEqual((await self.own.held())["a"], b"edited here\n")
        await self.assert_agreed()

    async def test_refused_file_does_not_block_other_files(self):
        await self.own.create("grown", "first\n")
        session = await self.begin()
        self.own.write("large", "x" * (BYTES_PER_MEMORY + 1))
        self.own.write("grown", "x" * (BYTES_PER_MEMORY + 1))
        self.own.write("odd\x07name", "refused for its path\n")
        self.own.write("nul", "a\0b")
        self.own.write("small", "fine\n")
        await self.sync(session, *["the server rejected this memory file"] * 4)
        self.assertEqual(await self.own.held(), {"grown": b"first\n", "small": b"fine\n"})
        # Each file is reported once, and retried after it has changed.
        await self.sync(session)
        self.own.write("large", "x" * BYTES_PER_MEMORY)
        self.own.write("grown", "smaller\n")
        self.own.write("nul", "ab")
        self.own.remove("odd\x07name")
        await self.sync(session)
        await self.assert_agreed()
        self.assertEqual(set(self.own.files()), {"grown", "large", "nul", "small"})

    async def test_flush_only_uploads(self):
        for name in ["edited", "deleted", "edited there"]:
            await self.own.create(name, "first\n")
        await self.shared.create("rules.md", "Be kind.\n")
        session = await self.begin()
        self.own.write("edited", "second\n")
        self.own.remove("deleted")
        new = {f"new/{n:02}": f"{n}\n" for n in range(60)}
        for name, content in new.items():
            self.own.write(name, content)
        self.shared.write("rules.md", "Be rude.\n")
        self.shared.write("more.md", "Be loud.\n")
        await self.own.update("edited there", content="there\n")
        await self.warned(session.flush_writes)
        expected = {"edited": b"second\n", "deleted": b"first\n", "edited there": b"there\n"}
        expected |= {name: content.encode() for name, content in new.items()}
        self.assertEqual(await self.own.held(), expected)
        self.assertEqual(self.own.files()["edited there"], b"first\n")
        self.assertEqual(await self.shared.held(), {"rules.md": b"Be kind.\n"})
        self.assertEqual(await self.version_count(self.shared), 1)

    async def test_wiped_folder_is_downloaded_again(self):
        for name in ["a", "b", "c"]:
            await self.own.create(name, f"{name}\n")
        session = await self.begin()
        self.own.remove("a", "b", "c")
        await self.sync(session, "every memory file is gone at once")
        self.assertEqual(set(self.own.files()), {"a", "b", "c"})
        await self.assert_agreed()
        self.assertEqual(await self.version_count(self.own), 3)

    async def test_read_only_store_is_never_written(self):
        for name in ["a", "b", "c", "d"]:
            await self.shared.create(name, f"{name}\n")
        session = await self.begin()
        before = await self.shared.held()
        self.shared.write("a", "edited here\n")
        self.shared.write("new", "new\n")
        self.shared.remove("b")
        await self.sync(session)
        await self.warned(session.flush_writes)
        self.assertEqual(await self.shared.held(), before)
        # A change on the server overwrites the edit.
        await self.shared.update("a", content="edited there\n")
        await self.warned(session.finish, "keeping the remote version")
        self.assertEqual(await self.shared.held(), before | {"a": b"edited there\n"})
        self.assertEqual(self.shared.files()["a"], b"edited there\n")
        self.assertEqual(await self.version_count(self.shared), 5)

    async def test_server_and_disk_are_equal_at_the_end_of_a_session(self):
        for n in range(30):
            await self.own.create(f"{n % 3}/{n:02}", f"first of {n}\n")
        await self.shared.create("rules.md", "Be kind.\n")
        session = await self.begin(sync_interval=5)
        for turn in range(3):
            for n in range(turn, 30, 5):
                self.own.write(f"{n % 3}/{n:02}", f"turn {turn} of {n}, here\n")
            await self.own.update(f"{(turn + 3) % 3}/{turn + 3:02}", content=f"turn {turn}, there\n")
            await self.own.create(f"there/{turn}", f"turn {turn}\n")
            self.own.write(f"here/{turn}", f"turn {turn}\n")
            await self.shared.create(f"{turn}.md", "More.\n")
            await self.sync(session)
            await self.assert_agreed()
        await self.own.delete("there/0")
        self.own.remove("here/1", "2/29")
        self.own.write("here/2", "the last word\n")
        await self.warned(session.finish)
        await self.assert_agreed()
        self.assertTrue({"there/0", "here/1", "2/29"}.isdisjoint(self.own.files()))
        self.assertEqual(self.own.files()["here/2"], b"the last word\n")
        self.assertEqual(len(self.own.files()), 30 - 1 + 2 + 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
