"""Memories through the official Python SDK."""

import asyncio
import unittest
from datetime import datetime, timedelta

from anthropic import AsyncAnthropic, BadRequestError, ConflictError, NotFoundError
from anthropic.types.beta.memory_stores import BetaManagedAgentsMemory

from support import (
    BYTES_PER_MEMORY,
    ID,
    NO_MEMORY,
    PREVIEW,
    TIME,
    WORKSPACE_ID,
    AsyncClient,
    OneStore,
    SyncClient,
    do,
    everything,
    holds,
    paths,
    sha256,
    streamed,
)

FIELDS = {
    "id",
    "type",
    "memory_store_id",
    "memory_version_id",
    "path",
    "content",
    "content_size_bytes",
    "content_sha256",
    "created_at",
    "updated_at",
    "size_bytes",
    "last_accessed_at",
    "expires_at",
    "expiry_time",
    "pinned",
}


class MemoryFacts(OneStore):
    async def retrieve(self, memory, **options):
        return await do(self.memories.retrieve(memory.id, memory_store_id=self.store.id, **options))

    async def list(self, **options):
        return await everything(self.memories.list(self.store.id, **options))

    async def version_ids(self, **filters):
        return [version.id for version in await everything(self.versions.list(self.store.id, **filters))]

    def patch(self, memory, body):
        return self.client.patch(
            f"/v1/memory_stores/{self.store.id}/memories/{memory.id}", body=body, cast_to=BetaManagedAgentsMemory
        )

    async def precondition_failed(self, call, memory, content):
        """Checks that `call` fails because of other content than expected."""
        error = await self.refused(ConflictError, "memory_precondition_failed_error", call)
        self.assertEqual(error.body["error"]["current_content_sha256"], sha256(content))
        self.assertEqual(error.body["error"]["memory_id"], memory.id)
        self.assert_not_to_be_retried(error)

    async def path_conflict(self, call, *in_the_way):
        """Checks that `call` conflicts with one of these memories."""
        error = await self.refused(ConflictError, "memory_path_conflict_error", call)
        told = (error.body["error"]["conflicting_path"], error.body["error"]["conflicting_memory_id"])
        self.assertIn(told, [(memory.path, memory.id) for memory in in_the_way])
        self.assert_not_to_be_retried(error)

    async def test_create_returns_the_memory_and_retrieve_its_content(self):
        memory = await self.create("/projects/a b/größe.md", "größer\n")
        self.assert_id("mem", memory.id)
        self.assert_id("memver", memory.memory_version_id)
        self.assertEqual((memory.type, memory.memory_store_id), ("memory", self.store.id))
        self.assertEqual(memory.path, "/projects/a b/größe.md")
        self.assertIsNone(memory.content)
        self.assertEqual((memory.content_size_bytes, memory.size_bytes), (9, 9))
        self.assertEqual(memory.content_sha256, sha256("größer\n"))
        self.assertEqual(memory.created_at, memory.updated_at)
        self.assertEqual((memory.expires_at, memory.pinned), (None, False))
        self.assertEqual(set(memory.to_dict()), FIELDS)
        read = await self.retrieve(memory)
        self.assertEqual(read.content, "größer\n")
        self.assertEqual(set(read.to_dict()), FIELDS)
        for field in FIELDS - {"content", "last_accessed_at"}:
            self.assertEqual(getattr(read, field), getattr(memory, field), field)

    async def test_view_decides_whether_content_is_returned(self):
        memory = await self.create(content="a", view="full")
        self.assertEqual(memory.content, "a")
        self.assertIsNone((await self.create("/b", "b", view="basic")).content)
        self.assertEqual((await self.retrieve(memory, view="full")).content, "a")
        self.assertIsNone((await self.retrieve(memory, view="basic")).content)
        self.assertIsNone((await self.update(memory, content="c")).content)
        self.assertEqual((await self.update(memory, content="d", view="full")).content, "d")
        self.assertEqual([item.content for item in await self.list()], [None, None])
        self.assertEqual([item.content for item in await self.list(view="full")], ["b", "d"])
        for call in [
            lambda: self.memories.create(self.store.id, path="/c", content="c", view="all"),
            lambda: self.memories.retrieve(memory.id, memory_store_id=self.store.id, view="all"),
            lambda: self.memories.update(memory.id, memory_store_id=self.store.id, content="e", view="all"),
            lambda: self.memories.list(self.store.id, view="all"),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, "view")

    async def test_content_is_stored_byte_for_byte(self):
        for n, content in enumerate(
            [
                "",
                "\n",
                "no newline at the end",
                "\ufeffwith a mark\r\nand\rall\nkinds of\u2028lines\u0085",
                "e\u0301 is not \u00e9",
                " \t trailing \t ",
                "\U0001f9e0\u0001\u001b\u007f",
                "x" * BYTES_PER_MEMORY,
                "ü" * (BYTES_PER_MEMORY // 2),
            ]
        ):
            memory = await self.create(f"/{n}", content)
            self.assertEqual(memory.content_size_bytes, len(content.encode()))
            self.assertEqual(memory.content_sha256, sha256(content))
            self.assertEqual((await self.retrieve(memory)).content, content)

    async def test_content_that_cannot_be_stored_is_refused(self):
        memory = await self.create()
        for content, named in [
            ("x" * (BYTES_PER_MEMORY + 1), "content"),
            ("ü" * (BYTES_PER_MEMORY // 2) + "x", "content"),
            ("a\0b", "content"),
            (5, "content"),
        ]:
            for call in [
                lambda: self.memories.create(self.store.id, path="/b", content=content),
                lambda: self.memories.update(memory.id, memory_store_id=self.store.id, content=content),
            ]:
                await self.refused(BadRequestError, "invalid_request_error", call, named)
        # Null means omitted, which create does not have.
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.memories.create(self.store.id, path="/b", content=None),
            "`content`",
        )
        same = await self.update(memory, content=None, path=None)
        self.assertEqual(same.memory_version_id, memory.memory_version_id)
        self.assertEqual(paths(await self.list()), ["/notes.md"])

    async def test_invalid_paths_are_refused(self):
        memory = await self.create()
        for path in [
            "",
            "/",
            "notes",
            "/a//b",
            "/a/",
            "/./a",
            "/a/../b",
            "/" + "/".join("a" * 21),
            "/" + "x" * 1024,
            "/a\nb",
            "/a\u0007b",
            "/a\u200bb",
            "/a\u2028b",
            "/a\u2029b",
            "/.anthropic-memory-store",
        ]:
            for call in [
                lambda: self.memories.create(self.store.id, path=path, content="a"),
                lambda: self.memories.update(memory.id, memory_store_id=self.store.id, path=path),
            ]:
                with self.subTest(path=path):
                    await self.refused(BadRequestError, "invalid_request_error", call, "path")
        for path in ["/" + "/".join("a" * 20), "/" + "x" * 1023, "/Notes.md", "/NOTES.MD", "/...", "/-", "/a b/ü"]:
            self.assertEqual((await self.create(path)).path, path)

    async def test_taken_path_is_a_conflict(self):
        memory = await self.create("/a/b")
        below = await self.create("/a/c/d")
        for path, in_the_way in [
            ("/a/b", [memory]),
            ("/a/b/c", [memory]),
            ("/a/b/c/d", [memory]),
            ("/a/c", [below]),
            ("/a", [memory, below]),
        ]:
            with self.subTest(path=path):
                await self.path_conflict(
                    lambda: self.memories.create(self.store.id, path=path, content="x"), *in_the_way
                )
        self.assertEqual(paths(await self.list()), ["/a/b", "/a/c/d"])
        self.assertEqual((await self.retrieve(memory)).content, "first\n")

    async def test_create_with_not_exists_reports_a_failed_precondition(self):
        not_exists = {"precondition": {"type": "not_exists"}}
        memory = await self.create(extra_body=not_exists)
        for headers in [{}, PREVIEW]:
            error = await self.refused(
                ConflictError,
                "memory_precondition_failed_error",
                lambda: self.memories.create(
                    self.store.id, path="/notes.md", content="b", extra_body=not_exists, extra_headers=headers
                ),
            )
            self.assert_not_to_be_retried(error)
        self.assertEqual(await self.version_ids(), [memory.memory_version_id])

    async def test_update_writes_content_and_path_in_one_version(self):
        memory = await self.create("/a", "1")
        edited = await self.update(memory, content="2")
        self.assertEqual((edited.id, edited.path, edited.created_at), (memory.id, "/a", memory.created_at))
        self.assertEqual(edited.content_sha256, sha256("2"))
        self.assertGreater(edited.updated_at, memory.updated_at)
        renamed = await self.update(memory, path="/b/c", view="full")
        self.assertEqual((renamed.id, renamed.path, renamed.content), (memory.id, "/b/c", "2"))
        both = await self.update(memory, path="/d", content="3", view="full")
        self.assertEqual((both.id, both.path, both.content), (memory.id, "/d", "3"))
        patched = await do(self.patch(memory, {"content": "4"}))
        self.assertEqual((patched.id, patched.content), (memory.id, None))
        versions = [memory, edited, renamed, both, patched]
        self.assertEqual(len({version.memory_version_id for version in versions}), 5)
        self.assertEqual(await self.version_ids(), [version.memory_version_id for version in versions][::-1])
        self.assertEqual(paths(await self.list()), ["/d"])
        # The old path is free again, and an empty folder no longer exists.
        await self.create("/a")
        await self.create("/b")

    async def test_update_that_changes_nothing_writes_no_version(self):
        memory = await self.create("/a", "1")
        for changes in [{}, {"content": "1"}, {"path": "/a"}, {"content": "1", "path": "/a"}]:
            same = await self.update(memory, **changes)
            self.assertEqual(same.memory_version_id, memory.memory_version_id)
            self.assertEqual(same.updated_at, memory.updated_at)
        self.assertEqual(await self.version_ids(), [memory.memory_version_id])

    async def test_pinning_writes_no_version(self):
        memory = await self.create()
        pinned = await self.update(memory, extra_body={"pinned": True})
        self.assertEqual((pinned.pinned, pinned.memory_version_id), (True, memory.memory_version_id))
        self.assertIs((await self.retrieve(memory)).pinned, True)
        loosened = await self.update(memory, extra_body={"pinned": False})
        self.assertEqual((loosened.pinned, loosened.memory_version_id), (False, memory.memory_version_id))

    async def test_update_requires_the_expected_content(self):
        memory = await self.create("/a", "1")
        edited = await self.update(memory, content="2", precondition=holds("1"))
        self.assertEqual(edited.content_sha256, sha256("2"))
        await self.precondition_failed(
            lambda: self.memories.update(
                memory.id, memory_store_id=self.store.id, content="3", precondition=holds("1")
            ),
            memory,
            "2",
        )
        await self.precondition_failed(
            lambda: self.memories.update(memory.id, memory_store_id=self.store.id, path="/b", precondition=holds("1")),
            memory,
            "2",
        )
        # The memory already has this content: a retry of an update that was made.
        again = await self.update(memory, content="2", precondition=holds("1"))
        self.assertEqual(again.memory_version_id, edited.memory_version_id)
        moved = await self.update(memory, path="/b", precondition=holds("2"))
        self.assertEqual(moved.path, "/b")
        for precondition in [
            {"type": "content_sha256"},
            {"type": "content_sha256", "content_sha256": "x"},
            {"type": "etag"},
            {"content_sha256": sha256("2")},
            {"type": "content_sha256", "content_sha256": sha256("2"), "more": 1},
            "2",
        ]:
            with self.subTest(precondition=precondition):
                await self.refused(
                    BadRequestError,
                    "invalid_request_error",
                    lambda: self.memories.update(
                        memory.id, memory_store_id=self.store.id, content="4", precondition=precondition
                    ),
                    "precondition",
                )

    async def test_rename_onto_a_taken_path_fails(self):
        one = await self.create("/a", "1")
        two = await self.create("/b/c", "2")
        for path in ["/b/c", "/b/c/d", "/b"]:
            await self.path_conflict(
                lambda: self.memories.update(one.id, memory_store_id=self.store.id, path=path, content="3"), two
            )
        same = await self.update(one, path="/b/c", content="3", precondition={"type": "not_exists"}, view="full")
        self.assertEqual((same.id, same.path, same.content), (one.id, "/a", "1"))
        self.assertEqual(same.memory_version_id, one.memory_version_id)
        moved = await self.update(one, path="/c", content="3", precondition={"type": "not_exists"}, view="full")
        self.assertEqual((moved.id, moved.path, moved.content), (one.id, "/c", "3"))

    async def test_delete_frees_the_path_and_keeps_the_history(self):
        memory = await self.create()
        deleted = await do(self.memories.delete(memory.id, memory_store_id=self.store.id))
        self.assertEqual(deleted.to_dict(), {"id": memory.id, "type": "memory_deleted"})
        for call in [
            lambda: self.memories.retrieve(memory.id, memory_store_id=self.store.id),
            lambda: self.memories.update(memory.id, memory_store_id=self.store.id, content="x"),
            lambda: self.memories.delete(memory.id, memory_store_id=self.store.id),
            lambda: self.memories.retrieve(NO_MEMORY, memory_store_id=self.store.id),
            lambda: self.memories.retrieve("nonsense", memory_store_id=self.store.id),
        ]:
            await self.refused(NotFoundError, "not_found_error", call)
        self.assertEqual(await self.list(), [])
        self.assertEqual(len(await self.version_ids(memory_id=memory.id)), 2)
        self.assertNotEqual((await self.create()).id, memory.id)

    async def test_delete_with_a_wrong_expected_hash_deletes_nothing(self):
        memory = await self.create(content="1")
        await self.precondition_failed(
            lambda: self.memories.delete(
                memory.id, memory_store_id=self.store.id, expected_content_sha256=sha256("2")
            ),
            memory,
            "1",
        )
        # A misspelt or malformed expectation must not delete either.
        for call, named in [
            (
                lambda: self.memories.delete(
                    memory.id, memory_store_id=self.store.id, extra_query={"expected_content_sha": sha256("1")}
                ),
                "expected_content_sha",
            ),
            (
                lambda: self.memories.delete(
                    memory.id, memory_store_id=self.store.id, expected_content_sha256="nonsense"
                ),
                "expected_content_sha256",
            ),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, named)
        self.assertEqual((await self.retrieve(memory)).content, "1")
        await do(
            self.memories.delete(memory.id, memory_store_id=self.store.id, expected_content_sha256=sha256("1"))
        )
        self.assertEqual(await self.list(), [])

    async def test_memory_of_another_store_is_not_found(self):
        memory = await self.create()
        other = await self.new_store()
        for call in [
            lambda: self.memories.retrieve(memory.id, memory_store_id=other.id),
            lambda: self.memories.update(memory.id, memory_store_id=other.id, content="x"),
            lambda: self.memories.delete(memory.id, memory_store_id=other.id),
            lambda: self.versions.retrieve(memory.memory_version_id, memory_store_id=other.id),
        ]:
            await self.refused(NotFoundError, "not_found_error", call)
        self.assertEqual((await self.retrieve(memory)).content, "first\n")

    async def preview(self, path, content):
        """Creates as the preview's plain HTTP clients do: its header, no `?beta=true`."""
        call = self.client.post(
            f"/v1/memory_stores/{self.store.id}/memories",
            body={"path": path, "content": content},
            cast_to=BetaManagedAgentsMemory,
            options={"headers": PREVIEW},
        )
        return await do(call)

    async def test_plain_clients_of_the_preview_replace_the_memory_at_the_path(self):
        first = await self.preview("/notes.md", "1")
        second = await self.preview("/notes.md", "2")
        self.assertEqual((second.id, second.created_at), (first.id, first.created_at))
        self.assertEqual((await self.retrieve(first)).content, "2")
        self.assertNotEqual(second.memory_version_id, first.memory_version_id)
        same = await self.preview("/notes.md", "2")
        self.assertEqual(same.memory_version_id, second.memory_version_id)
        self.assertEqual(await self.version_ids(), [second.memory_version_id, first.memory_version_id])
        # A directory is not replaced.
        await self.create("/folder/a")
        await self.refused(
            ConflictError,
            "memory_path_conflict_error",
            lambda: self.preview("/folder", "x"),
        )

    async def test_sdk_never_overwrites_with_any_beta(self):
        memory = await self.create(content="kept")
        new = {"path": "/notes.md", "content": "lost"}
        await self.path_conflict(
            lambda: self.memories.create(self.store.id, **new, betas=["managed-agents-2026-04-01"]), memory
        )
        # The SDKs 0.97 to 0.112 send only the preview's header, and `?beta=true`.
        old_sdk = {"extra_headers": PREVIEW, "extra_query": {"beta": "true"}}
        await self.path_conflict(lambda: self.memories.create(self.store.id, **new, **old_sdk), memory)
        self.assertEqual((await self.retrieve(memory)).content, "kept")

    async def test_create_without_a_beta_never_overwrites(self):
        memory = await self.create()
        body = {"path": "/notes.md", "content": "b"}
        path = f"/v1/memory_stores/{self.store.id}/memories"
        await self.path_conflict(
            lambda: self.client.post(path, body=body, cast_to=BetaManagedAgentsMemory), memory
        )

    async def test_bodies_other_than_objects_are_refused(self):
        memory = await self.create()
        path = f"/v1/memory_stores/{self.store.id}/memories"
        for route, body in [
            (path, ["/b", "b", None]),
            (f"{path}/{memory.id}", ["b", None, None, None]),
            (f"{path}/{memory.id}", []),
            (f"{path}/{memory.id}", "b"),
            (f"{path}/{memory.id}", {"content": "b", "precondition": ["content_sha256", memory.content_sha256]}),
        ]:
            with self.subTest(route=route, body=body):
                await self.refused(
                    BadRequestError,
                    "invalid_request_error",
                    lambda: self.client.post(route, body=body, cast_to=object),
                )
        self.assertEqual(await self.version_ids(), [memory.memory_version_id])

    async def test_retrieve_counts_as_a_read_and_list_does_not(self):
        memory = await self.create()
        self.assertIsNone((await self.list())[0].last_accessed_at)
        await self.retrieve(memory)
        # The next read shows the time of this one.
        read = await self.retrieve(memory)
        accessed = datetime.fromisoformat(read.last_accessed_at.replace("Z", "+00:00"))
        self.assertGreaterEqual(accessed, memory.created_at)
        self.assertEqual(read.updated_at, memory.updated_at)

    async def test_memory_has_its_expiry_time(self):
        store = await self.new_store(extra_body={"expires_unused_after": 30 * 86_400})
        memory = await self.new_memory(store)
        expires = datetime.fromisoformat(memory.expires_at.replace("Z", "+00:00"))
        self.assertEqual(expires, memory.created_at + timedelta(days=30))
        pinned = await do(self.memories.update(memory.id, memory_store_id=store.id, extra_body={"pinned": True}))
        self.assertIsNone(pinned.expires_at)

    async def test_one_of_many_concurrent_creates_wins(self):
        def create(n):
            return self.at_once(lambda: self.memories.create(self.store.id, path="/contended", content=str(n)))

        outcomes = await asyncio.gather(*(create(n) for n in range(8)), return_exceptions=True)
        made = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
        self.assertEqual(len(made), 1, outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self.assertIsInstance(outcome, ConflictError)
                self.assertEqual(outcome.body["error"]["conflicting_memory_id"], made[0].id)

    async def test_concurrent_updates_succeed_or_report_a_conflict(self):
        memory = await self.create(content="")

        def update(n):
            return self.at_once(
                lambda: self.memories.update(memory.id, memory_store_id=self.store.id, content=str(n))
            )

        updated = await asyncio.gather(*(update(n) for n in range(8)))
        versions = await everything(self.versions.list(self.store.id, view="full", operation="modified"))
        self.assertEqual(sorted(version.content for version in versions), [str(n) for n in range(8)])
        self.assertEqual({version.id for version in versions}, {answer.memory_version_id for answer in updated})
        self.assertEqual((await self.retrieve(memory)).content, versions[0].content)

    async def at_once(self, call):
        """Calls in a separate thread if the client would block others."""
        if isinstance(self.client, AsyncAnthropic):
            return await call()
        return await asyncio.to_thread(call)

    async def test_unknown_body_fields_are_refused_by_name(self):
        memory = await self.create()
        for call in [
            lambda: self.memories.create(
                self.store.id, path="/b", content="b", extra_body={"preconditon": {"type": "not_exists"}}
            ),
            lambda: self.memories.update(
                memory.id, memory_store_id=self.store.id, content="b", extra_body={"preconditon": holds("1")}
            ),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, "`preconditon`")
        # Other methods than DELETE ignore unknown parameters.
        self.assertEqual((await self.retrieve(memory, extra_query={"color": "blue"})).content, "first\n")

    async def test_repeated_idempotency_key_returns_the_first_create(self):
        headers = self.new_idempotency_key()
        memory = await self.create(extra_headers=headers)
        again = await self.create(extra_headers=headers)
        self.assertEqual((again.id, again.memory_version_id), (memory.id, memory.memory_version_id))
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.memories.create(self.store.id, path="/b", content="b", extra_headers=headers),
        )
        self.assertEqual(await self.version_ids(), [memory.memory_version_id])

    async def test_raw_and_streaming_responses_have_request_and_workspace_ids(self):
        raw = await do(self.memories.with_raw_response.create(self.store.id, path="/a", content="1"))
        memory = await do(raw.parse())
        body = await do(raw.json())
        self.assertEqual(set(body), FIELDS)
        for time in ["created_at", "updated_at"]:
            self.assertRegex(body[time], TIME)
        for call in [
            lambda: self.memories.with_raw_response.retrieve(memory.id, memory_store_id=self.store.id),
            lambda: self.memories.with_raw_response.update(memory.id, memory_store_id=self.store.id, content="2"),
            lambda: self.memories.with_raw_response.list(self.store.id),
            lambda: self.memories.with_raw_response.delete(memory.id, memory_store_id=self.store.id),
        ]:
            raw = await do(call())
            self.assertEqual((raw.status_code, raw.headers["content-type"]), (200, "application/json"))
            self.assertEqual(raw.headers["anthropic-workspace-id"], WORKSPACE_ID)
            self.assertRegex(raw.headers["request-id"], ID.format("req"))
        memory = await self.create("/b", "streamed\n")
        read = await streamed(
            self.memories.with_streaming_response.retrieve(memory.id, memory_store_id=self.store.id),
            lambda response: response.parse(),
        )
        self.assertEqual(read.content, "streamed\n")
        listed = await streamed(
            self.memories.with_streaming_response.list(self.store.id), lambda response: response.parse()
        )
        self.assertEqual(paths(listed.data), ["/b"])


class MemoriesOfTheSyncClient(MemoryFacts, SyncClient):
    pass


class MemoriesOfTheAsyncClient(MemoryFacts, AsyncClient):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
