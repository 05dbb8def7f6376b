"""Memory versions through the official Python SDK."""

import unittest

from anthropic import BadRequestError, ConflictError, NotFoundError
from anthropic.types.beta.memory_stores import BetaManagedAgentsMemory

from support import (
    ID,
    MICROSECOND,
    NO_MEMORY,
    NO_VERSION,
    TIME,
    WORKSPACE_ID,
    AsyncClient,
    OneStore,
    SyncClient,
    another_key,
    do,
    everything,
    holds,
    pages,
    sha256,
    streamed,
    ways_to_write,
)

FIELDS = {
    "id",
    "type",
    "memory_store_id",
    "memory_id",
    "seq",
    "operation",
    "path",
    "content",
    "content_size_bytes",
    "content_sha256",
    "created_at",
    "created_by",
    "redacted_at",
    "redacted_by",
}


class VersionFacts(OneStore):
    async def list(self, **filters):
        return await everything(self.versions.list(self.store.id, **filters))

    async def retrieve(self, version_id, **options):
        return await do(self.versions.retrieve(version_id, memory_store_id=self.store.id, **options))

    async def redact(self, version_id):
        return await do(self.versions.redact(version_id, memory_store_id=self.store.id))

    def restore(self, version_id, body=None):
        """Calls a method that only Keepsake has, as the SDK calls its own."""
        path = f"/v1/memory_stores/{self.store.id}/memory_versions/{version_id}/restore"
        return self.client.post(path, body=body, cast_to=BetaManagedAgentsMemory)

    async def history(self):
        """A memory that was created, edited, renamed and deleted; its versions, oldest first."""
        memory = await self.create("/a", "1")
        edited = await self.update(memory, content="22")
        renamed = await self.update(memory, path="/b")
        await self.delete(memory)
        versions = (await self.list(memory_id=memory.id))[::-1]
        written = [memory.memory_version_id, edited.memory_version_id, renamed.memory_version_id]
        self.assertEqual([version.id for version in versions][:3], written)
        return memory, versions

    async def test_every_change_is_one_version_newest_first(self):
        memory, versions = await self.history()
        told = [
            (version.operation, version.path, version.content, version.content_size_bytes, version.content_sha256)
            for version in versions
        ]
        self.assertEqual(
            told,
            [
                ("created", "/a", None, 1, sha256("1")),
                ("modified", "/a", None, 2, sha256("22")),
                ("modified", "/b", None, 2, sha256("22")),
                ("deleted", "/b", None, None, None),
            ],
        )
        for version in versions:
            self.assert_id("memver", version.id)
            self.assertEqual(set(version.to_dict()), FIELDS)
            self.assertEqual(version.type, "memory_version")
            self.assertEqual((version.memory_id, version.memory_store_id), (memory.id, self.store.id))
            self.assertEqual(version.created_by.type, "api_actor")
            self.assert_id("apikey", version.created_by.api_key_id)
            self.assertEqual((version.redacted_at, version.redacted_by), (None, None))
        times = [version.created_at for version in versions]
        self.assertEqual(times, sorted(times))
        self.assertEqual([version.id for version in versions], sorted(version.id for version in versions))

    async def test_retrieve_has_content_by_default(self):
        _, versions = await self.history()
        contents = [(await self.retrieve(version.id)).content for version in versions]
        self.assertEqual(contents, ["1", "22", "22", None])
        self.assertEqual(await self.retrieve(versions[1].id, view="basic"), versions[1])
        self.assertEqual((await self.retrieve(versions[1].id, view="full")).content, "22")
        full = await self.list(view="full")
        self.assertEqual([version.content for version in full], [None, "22", "22", "1"])
        for call in [
            lambda: self.versions.retrieve(NO_VERSION, memory_store_id=self.store.id),
            lambda: self.versions.retrieve("nonsense", memory_store_id=self.store.id),
            lambda: self.versions.redact(NO_VERSION, memory_store_id=self.store.id),
            lambda: self.restore(NO_VERSION),
        ]:
            await self.refused(NotFoundError, "not_found_error", call)

    async def test_list_is_filtered(self):
        memory, versions = await self.history()
        other = await self.create("/other")
        newest_first = [version.id for version in versions[::-1]]

        async def ids(**filters):
            return [version.id for version in await self.list(**filters)]

        self.assertEqual(await ids(), [other.memory_version_id, *newest_first])
        self.assertEqual(await ids(memory_id=memory.id, limit=1), newest_first)
        self.assertEqual(await ids(memory_id=other.id), [other.memory_version_id])
        self.assertEqual(await ids(operation="created"), [other.memory_version_id, versions[0].id])
        self.assertEqual(await ids(operation="modified"), [versions[2].id, versions[1].id])
        self.assertEqual(await ids(operation="deleted"), [versions[3].id])
        self.assertEqual(await ids(operation="deleted", memory_id=other.id), [])
        self.assertEqual(await ids(operation="created", memory_id=memory.id), [versions[0].id])
        self.assertEqual(await ids(memory_id=NO_MEMORY), [])
        key_id = versions[0].created_by.api_key_id
        self.assertEqual(len(await ids(api_key_id=key_id)), 5)
        self.assertEqual(await ids(api_key_id="apikey_00000000000000000000000001"), [])
        self.assertEqual(await ids(session_id="sesn_00000000000000000000000001"), [])
        self.assertEqual(await ids(service_account_id="svac_00000000000000000000000001"), [])
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.versions.list(self.store.id, operation="renamed"),
            "operation",
        )

    async def test_list_filters_versions_by_key(self):
        mine = await self.create("/mine")
        writer = self.client_with(another_key("WRITER")).beta.memory_stores.memories
        theirs = await do(writer.update(mine.id, memory_store_id=self.store.id, content="theirs"))
        newest, oldest = await self.list()
        self.assertEqual((newest.id, oldest.id), (theirs.memory_version_id, mine.memory_version_id))
        self.assertNotEqual(newest.created_by, oldest.created_by)
        for version in [newest, oldest]:
            self.assertEqual(await self.list(api_key_id=version.created_by.api_key_id), [version])

    async def test_list_is_filtered_by_creation_time_of_versions(self):
        _, versions = await self.history()
        middle = versions[1]
        for time in ways_to_write(middle.created_at):
            self.assertEqual(await self.list(created_at_gte=time, created_at_lte=time), [middle], time)
        self.assertEqual(await self.list(created_at_gte=middle.created_at + MICROSECOND), versions[:1:-1])
        self.assertEqual(await self.list(created_at_lte=middle.created_at - MICROSECOND), versions[:1])
        plain = {"created_at_gte": middle.created_at.isoformat()}
        self.assertEqual(await self.list(extra_query=plain), versions[:0:-1])
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.versions.list(self.store.id, created_at_lte="never"),
            "created_at",
        )

    async def test_page_has_20_items_by_default_and_at_most_20_with_content(self):
        memory = await self.create(content="0")
        for n in range(1, 23):
            await self.update(memory, content=str(n))
        in_order = [str(n) for n in range(22, -1, -1)]
        self.assertEqual(len((await do(self.versions.list(self.store.id))).data), 20)
        self.assertEqual(len((await do(self.versions.list(self.store.id, limit=100))).data), 23)
        full = await pages(self.versions.list(self.store.id, limit=100, view="full"))
        self.assertEqual([len(page.data) for page in full], [20, 3])
        self.assertEqual([version.content for page in full for version in page.data], in_order)
        # A version written meanwhile is newer than all further pages.
        page = await do(self.versions.list(self.store.id, limit=10))
        seen = [version.content_sha256 for version in page.data]
        await self.update(memory, content="more")
        while page.has_next_page():
            page = await do(page.get_next_page())
            self.assertTrue(page.data)
            seen += [version.content_sha256 for version in page.data]
        self.assertEqual(seen, [sha256(content) for content in in_order])
        for limit in [0, 101]:
            await self.refused(
                BadRequestError,
                "invalid_request_error",
                lambda: self.versions.list(self.store.id, limit=limit),
                "limit",
            )

    async def test_cursor_is_valid_only_for_its_list(self):
        memory, _ = await self.history()
        other = await self.new_store()
        cursor = (await do(self.versions.list(self.store.id, limit=1))).next_page
        for call in [
            lambda: self.versions.list(other.id, page=cursor),
            lambda: self.versions.list(self.store.id, page=cursor, memory_id=memory.id),
            lambda: self.versions.list(self.store.id, page=cursor, operation="created"),
            lambda: self.versions.list(self.store.id, page="page_x"),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, "page")

    async def test_redaction_removes_the_content_and_keeps_the_rest(self):
        memory = await self.create("/a", "secret")
        await self.update(memory, content="harmless")
        before = await self.retrieve(memory.memory_version_id)
        redacted = await self.redact(memory.memory_version_id)
        self.assertEqual(set(redacted.to_dict()), FIELDS | {"content_also_in"})
        self.assertEqual(redacted.content_also_in, [])
        gone = (redacted.content, redacted.path, redacted.content_size_bytes, redacted.content_sha256)
        self.assertEqual(gone, (None, None, None, None))
        for field in ["id", "memory_id", "operation", "created_at", "created_by"]:
            self.assertEqual(getattr(redacted, field), getattr(before, field), field)
        self.assertGreaterEqual(redacted.redacted_at, before.created_at)
        self.assertEqual(redacted.redacted_by, before.created_by)
        read = await self.retrieve(memory.memory_version_id)
        for field in FIELDS:
            self.assertEqual(getattr(read, field), getattr(redacted, field), field)
        # A repetition returns the same and keeps the first time.
        again = await self.redact(memory.memory_version_id)
        self.assertEqual(again.redacted_at, redacted.redacted_at)
        self.assertIsNone(again.content_also_in)
        head = await do(self.memories.retrieve(memory.id, memory_store_id=self.store.id))
        self.assertEqual(head.content, "harmless")

    async def test_redaction_reports_versions_with_the_same_content(self):
        memory = await self.create("/a", "secret")
        renamed = await self.update(memory, path="/b")
        copy = await self.create("/copy", "secret")
        await self.update(memory, content="harmless")
        await self.update(copy, content="harmless too")
        redacted = await self.redact(memory.memory_version_id)
        self.assertIn(renamed.memory_version_id, redacted.content_also_in)
        self.assertLessEqual(set(redacted.content_also_in), {renamed.memory_version_id, copy.memory_version_id})
        self.assertEqual((await self.retrieve(renamed.memory_version_id)).content, "secret")

    async def test_version_with_live_content_cannot_be_redacted(self):
        memory = await self.create("/a", "1")
        renamed = await self.update(memory, path="/b")
        # The older version shares the content of the head.
        for version_id in [renamed.memory_version_id, memory.memory_version_id]:
            error = await self.refused(
                ConflictError,
                "conflict_error",
                lambda: self.versions.redact(version_id, memory_store_id=self.store.id),
            )
            self.assert_not_to_be_retried(error)
            self.assertEqual((await self.retrieve(version_id)).content, "1")
        await self.delete(memory)
        for version in await self.list():
            self.assertIsNotNone((await self.redact(version.id)).redacted_at)
        self.assertEqual([version.path for version in await self.list()], [None] * 3)

    async def test_restore_writes_content_and_path_as_a_new_version(self):
        memory = await self.create("/a", "1")
        await self.update(memory, content="2", path="/b")
        restored = await do(self.restore(memory.memory_version_id))
        self.assertEqual((restored.id, restored.path, restored.content_sha256), (memory.id, "/a", sha256("1")))
        newest = (await self.list())[0]
        self.assertEqual((newest.id, newest.operation, newest.path), (restored.memory_version_id, "modified", "/a"))
        self.assertEqual((await self.retrieve(newest.id)).content, "1")
        self.assertEqual(len(await self.list()), 3)

    async def test_restore_undeletes_the_same_memory(self):
        memory, versions = await self.history()
        restored = await do(self.restore(versions[1].id, body={}))
        self.assertEqual((restored.id, restored.path, restored.content_sha256), (memory.id, "/a", sha256("22")))
        self.assertEqual((await do(self.memories.retrieve(memory.id, memory_store_id=self.store.id))).content, "22")
        self.assertEqual(len(await self.list(memory_id=memory.id)), 5)

    async def test_restore_checks_precondition_and_path_conflicts(self):
        memory = await self.create("/a", "1")
        await self.update(memory, content="2")
        error = await self.refused(
            ConflictError,
            "memory_precondition_failed_error",
            lambda: self.restore(memory.memory_version_id, body={"precondition": holds("3")}),
        )
        self.assertEqual(error.body["error"]["current_content_sha256"], sha256("2"))
        self.assertEqual(error.body["error"]["memory_id"], memory.id)
        self.assert_not_to_be_retried(error)
        await do(self.restore(memory.memory_version_id, body={"precondition": holds("2")}))
        await self.update(memory, path="/b")
        other = await self.create("/a", "other")
        error = await self.refused(
            ConflictError, "memory_path_conflict_error", lambda: self.restore(memory.memory_version_id)
        )
        self.assertEqual(error.body["error"]["conflicting_memory_id"], other.id)
        self.assertEqual(error.body["error"]["conflicting_path"], "/a")
        self.assert_not_to_be_retried(error)
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.restore(memory.memory_version_id, body={"preconditon": holds("2")}),
            "preconditon",
        )

    async def test_version_without_content_cannot_be_restored(self):
        _, versions = await self.history()
        await self.redact(versions[0].id)
        for version in [versions[0], versions[3]]:
            error = await self.refused(ConflictError, "conflict_error", lambda: self.restore(version.id))
            self.assert_not_to_be_retried(error)
        self.assertEqual(len(await self.list()), 4)

    async def test_raw_and_streaming_responses_have_request_and_workspace_ids(self):
        _, versions = await self.history()
        raw = await do(self.versions.with_raw_response.retrieve(versions[0].id, memory_store_id=self.store.id))
        body = await do(raw.json())
        self.assertEqual(set(body), FIELDS)
        self.assertRegex(body["created_at"], TIME)
        for call in [
            lambda: self.versions.with_raw_response.retrieve(versions[0].id, memory_store_id=self.store.id),
            lambda: self.versions.with_raw_response.list(self.store.id),
            lambda: self.versions.with_raw_response.redact(versions[0].id, memory_store_id=self.store.id),
        ]:
            raw = await do(call())
            self.assertEqual(raw.headers["anthropic-workspace-id"], WORKSPACE_ID)
            self.assertRegex(raw.headers["request-id"], ID.format("req"))
            await do(raw.parse())
        read = await streamed(
            self.versions.with_streaming_response.retrieve(versions[1].id, memory_store_id=self.store.id),
            lambda response: response.parse(),
        )
        self.assertEqual(read.content, "22")


class VersionsOfTheSyncClient(VersionFacts, SyncClient):
    pass


class VersionsOfTheAsyncClient(VersionFacts, AsyncClient):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
