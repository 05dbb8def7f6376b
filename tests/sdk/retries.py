"""Results of the official Python SDK's retries.

The SDK sends a request again after a 503, a 409 or a lost connection, and says
nothing of it to its caller. A proxy makes it do so and counts.
"""

import unittest

from anthropic import ConflictError, InternalServerError, NotFoundError

from support import LOST, PREVIEW, UNAVAILABLE, AsyncClient, OneStore, SyncClient, do, everything, holds


class RetryFacts(OneStore):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.way = self.proxy()
        spoilt = self.client_with(base_url=self.way.url).beta.memory_stores
        self.spoilt_stores = spoilt
        self.spoilt_memories = spoilt.memories
        self.spoilt_versions = spoilt.memory_versions

    async def version_count(self):
        return len(await everything(self.versions.list(self.store.id, limit=100)))

    async def test_unavailable_server_is_retried(self):
        self.way.spoil(UNAVAILABLE)
        memory = await do(self.spoilt_memories.create(self.store.id, path="/a", content="1"))
        self.assertEqual(self.way.seen(), [("POST", None), ("POST", 200)])
        self.way.spoil(UNAVAILABLE, UNAVAILABLE)
        read = await do(self.spoilt_memories.retrieve(memory.id, memory_store_id=self.store.id))
        self.assertEqual(read.content, "1")
        self.assertEqual(self.way.seen(), [("GET", None), ("GET", None), ("GET", 200)])
        self.way.spoil(UNAVAILABLE, UNAVAILABLE, UNAVAILABLE)
        with self.assertRaises(InternalServerError) as raised:
            await do(self.spoilt_memories.list(self.store.id))
        self.assertEqual(raised.exception.type, "overloaded_error")
        self.assertEqual(await self.version_count(), 1)

    async def test_lost_page_is_retried(self):
        for name in "abcdefg":
            await self.new_memory(self.store, path=f"/{name}")
        self.way.spoil(None, UNAVAILABLE, None, LOST)
        listed = await everything(self.spoilt_memories.list(self.store.id, limit=3))
        self.assertEqual([item.path for item in listed], [f"/{name}" for name in "abcdefg"])
        self.assertEqual(
            self.way.seen(), [("GET", 200), ("GET", None), ("GET", 200), ("GET", 200), ("GET", 200)]
        )

    async def test_retry_of_a_lost_create_conflicts_with_itself(self):
        self.way.spoil(LOST)
        error = await self.refused(
            ConflictError,
            "memory_path_conflict_error",
            lambda: self.spoilt_memories.create(self.store.id, path="/a", content="1"),
        )
        self.assertEqual(self.way.seen(), [("POST", 200), ("POST", 409)])
        made = (await do(self.memories.list(self.store.id))).data[0]
        self.assertEqual(error.body["error"]["conflicting_memory_id"], made.id)
        self.assertEqual(await self.version_count(), 1)

    async def test_lost_create_with_an_idempotency_key_is_applied_once(self):
        headers = self.new_idempotency_key()
        self.way.spoil(LOST)
        memory = await do(
            self.spoilt_memories.create(self.store.id, path="/a", content="1", extra_headers=headers)
        )
        self.assertEqual(self.way.seen(), [("POST", 200), ("POST", 200)])
        self.assertEqual(await self.version_count(), 1)
        self.assertEqual((await do(self.memories.list(self.store.id))).data[0].id, memory.id)
        self.way.spoil(LOST)
        store = await do(self.spoilt_stores.create(name="once", extra_headers=headers))
        self.assertEqual(self.way.seen(), [("POST", 200), ("POST", 200)])
        since = await everything(self.stores.list(created_at_gte=self.store.created_at))
        self.assertEqual([listed.id for listed in since], [store.id, self.store.id])

    async def test_lost_create_of_a_preview_client_is_applied_once(self):
        self.way.spoil(LOST)
        memory = await do(
            self.spoilt_memories.create(self.store.id, path="/a", content="1", extra_headers=PREVIEW)
        )
        self.assertEqual(self.way.seen(), [("POST", 200), ("POST", 200)])
        versions = await everything(self.versions.list(self.store.id))
        self.assertEqual([version.id for version in versions], [memory.memory_version_id])

    async def test_lost_update_is_applied_once(self):
        memory = await self.new_memory(self.store, content="1")
        for change in [{"content": "2", "precondition": holds("1")}, {"content": "3"}, {"path": "/b"}]:
            self.way.spoil(LOST)
            versions = await self.version_count()
            updated = await do(self.spoilt_memories.update(memory.id, memory_store_id=self.store.id, **change))
            self.assertEqual(self.way.seen(), [("POST", 200), ("POST", 200)], change)
            self.assertEqual(await self.version_count(), versions + 1, change)
            newest = (await do(self.versions.list(self.store.id, limit=1))).data[0]
            self.assertEqual(newest.id, updated.memory_version_id)

    async def test_retry_of_a_lost_deletion_finds_nothing(self):
        memory = await self.new_memory(self.store, content="1")
        self.way.spoil(LOST)
        await self.refused(
            NotFoundError,
            "not_found_error",
            lambda: self.spoilt_memories.delete(memory.id, memory_store_id=self.store.id),
        )
        self.assertEqual(self.way.seen(), [("DELETE", 200), ("DELETE", 404)])
        self.assertEqual(await self.version_count(), 2)
        self.way.spoil(LOST)
        await self.refused(NotFoundError, "not_found_error", lambda: self.spoilt_stores.delete(self.store.id))
        self.assertEqual(self.way.seen(), [("DELETE", 200), ("DELETE", 404)])

    async def test_lost_archiving_and_redaction_may_be_repeated(self):
        memory = await self.new_memory(self.store, content="1")
        await do(self.memories.update(memory.id, memory_store_id=self.store.id, content="2"))
        self.way.spoil(LOST)
        redacted = await do(self.spoilt_versions.redact(memory.memory_version_id, memory_store_id=self.store.id))
        self.assertIsNotNone(redacted.redacted_at)
        self.assertEqual(self.way.seen(), [("POST", 200), ("POST", 200)])
        self.way.spoil(LOST)
        archived = await do(self.spoilt_stores.archive(self.store.id))
        self.assertIsNotNone(archived.archived_at)
        self.assertEqual(self.way.seen(), [("POST", 200), ("POST", 200)])

    async def test_permanent_conflict_is_not_retried(self):
        memory = await self.new_memory(self.store, path="/a", content="1")
        at_home = {"memory_store_id": self.store.id}
        for error_type, call in [
            (
                "memory_path_conflict_error",
                lambda: self.spoilt_memories.create(self.store.id, path="/a", content="2"),
            ),
            (
                "memory_precondition_failed_error",
                lambda: self.spoilt_memories.create(
                    self.store.id, path="/a", content="2", extra_body={"precondition": {"type": "not_exists"}}
                ),
            ),
            (
                "memory_precondition_failed_error",
                lambda: self.spoilt_memories.update(memory.id, content="2", precondition=holds("0"), **at_home),
            ),
            (
                "memory_precondition_failed_error",
                lambda: self.spoilt_memories.delete(
                    memory.id, expected_content_sha256=holds("0")["content_sha256"], **at_home
                ),
            ),
            (
                "conflict_error",
                lambda: self.spoilt_versions.redact(memory.memory_version_id, **at_home),
            ),
        ]:
            self.way.spoil()
            error = await self.refused(ConflictError, error_type, call)
            self.assert_not_to_be_retried(error)
            self.assertEqual([status for _, status in self.way.seen()], [409], error_type)
        self.assertEqual(await self.version_count(), 1)


class RetriesOfTheSyncClient(RetryFacts, SyncClient):
    pass


class RetriesOfTheAsyncClient(RetryFacts, AsyncClient):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
