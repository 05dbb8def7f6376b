"""Memory stores through the official Python SDK."""

import unittest
from datetime import datetime

from anthropic import (
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    ContentTooLargeError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
)
from anthropic.types.beta import BetaManagedAgentsMemoryStore

from support import (
    API_KEY,
    ID,
    MICROSECOND,
    NO_MEMORY,
    NO_STORE,
    NO_VERSION,
    TIME,
    WORKSPACE_ID,
    AsyncClient,
    SyncClient,
    another_key,
    do,
    everything,
    pages,
    streamed,
    ways_to_write,
)

FIELDS = {
    "id",
    "type",
    "name",
    "description",
    "metadata",
    "created_at",
    "updated_at",
    "archived_at",
    "memory_count",
    "content_bytes",
    "expires_unused_after",
    "sensitive_data_policy",
    "records_reads",
    "search_mode",
}


class StoreFacts:
    async def test_create_and_retrieve_return_the_whole_store(self):
        store = await self.new_store("Notes", description="Of a trip", metadata={"user": "ü", "n": ""})
        self.assert_id("memstore", store.id)
        self.assertEqual(store.type, "memory_store")
        self.assertEqual((store.name, store.description), ("Notes", "Of a trip"))
        self.assertEqual(store.metadata, {"user": "ü", "n": ""})
        self.assertEqual(store.created_at, store.updated_at)
        self.assertIsNone(store.archived_at)
        self.assertEqual(set(store.to_dict()), FIELDS)
        self.assertEqual((store.memory_count, store.content_bytes), (0, 0))
        self.assertIsNone(store.expires_unused_after)
        self.assertEqual(store.sensitive_data_policy, "off")
        self.assertEqual(await do(self.stores.retrieve(store.id)), store)

    async def test_unset_fields_are_empty_not_null(self):
        for fields in [{}, {"description": "", "metadata": {}}, {"description": None, "metadata": None}]:
            store = await self.new_store("Bare", **fields)
            self.assertEqual((store.description, store.metadata), ("", {}), fields)

    async def test_update_merges_metadata_and_none_removes_a_key(self):
        store = await self.new_store(metadata={"kept": "1", "changed": "2", "removed": "3"})
        changes = {"changed": "two", "removed": None, "added": "4", "never there": None}
        updated = await do(self.stores.update(store.id, metadata=changes))
        self.assertEqual(updated.metadata, {"kept": "1", "changed": "two", "added": "4"})
        self.assertEqual(await do(self.stores.retrieve(store.id)), updated)

    async def test_update_changes_only_named_fields_and_updated_at(self):
        store = await self.new_store("Old", description="Old words", metadata={"k": "v"})
        renamed = await do(self.stores.update(store.id, name="New"))
        self.assertEqual((renamed.name, renamed.description, renamed.metadata), ("New", "Old words", {"k": "v"}))
        self.assertGreater(renamed.updated_at, store.updated_at)
        self.assertEqual(renamed.created_at, store.created_at)
        cleared = await do(self.stores.update(store.id, description=""))
        self.assertEqual((cleared.name, cleared.description), ("New", ""))
        self.assertGreater(cleared.updated_at, renamed.updated_at)
        # A null field means the same as leaving it out.
        same = await do(self.stores.update(store.id, name=None, description=None, metadata=None))
        self.assertEqual((same.name, same.description, same.metadata), ("New", "", {"k": "v"}))

    async def test_patch_and_post_update_equally(self):
        store = await self.new_store(metadata={"k": "v"})
        body = {"name": "Patched", "metadata": {"k": None}}
        path = f"/v1/memory_stores/{store.id}"
        patched = await do(self.client.patch(path, body=body, cast_to=BetaManagedAgentsMemoryStore))
        self.assertEqual((patched.name, patched.metadata), ("Patched", {}))
        self.assertEqual(await do(self.stores.retrieve(store.id)), patched)

    async def test_memories_change_the_counts_but_not_updated_at(self):
        store = await self.new_store()
        memory = await self.new_memory(store, content="größer\n")
        await self.new_memory(store, path="/b", content="12345")
        counted = await do(self.stores.retrieve(store.id))
        self.assertEqual((counted.memory_count, counted.content_bytes), (2, len("größer\n".encode()) + 5))
        self.assertEqual(counted.updated_at, store.updated_at)
        await do(self.memories.delete(memory.id, memory_store_id=store.id))
        counted = await do(self.stores.retrieve(store.id))
        self.assertEqual((counted.memory_count, counted.content_bytes), (1, 5))

    async def test_metadata_holds_16_pairs_after_the_merge(self):
        full = {str(n): "v" for n in range(16)}
        store = await self.new_store(metadata=full)
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.stores.update(store.id, metadata={"seventeenth": "v"}),
            "metadata",
        )
        swapped = await do(self.stores.update(store.id, metadata={"0": None, "seventeenth": "v"}))
        self.assertEqual(len(swapped.metadata), 16)
        self.assertIn("seventeenth", swapped.metadata)

    async def test_bad_fields_are_named(self):
        store = await self.new_store()
        for field, values in {
            "name": ["", "x" * 256, "a\nb", 5],
            "description": ["x" * 1025, ["x"]],
            "metadata": [
                {"": "v"},
                {"k" * 65: "v"},
                {"k": "v" * 513},
                {"k": 1},
                {str(n): "v" for n in range(17)},
                "k",
            ],
        }.items():
            for value in values:
                create = {"name": "notes", field: value}
                await self.refused(
                    BadRequestError, "invalid_request_error", lambda: self.stores.create(**create), f"`{field}`"
                )
                await self.refused(
                    BadRequestError,
                    "invalid_request_error",
                    lambda: self.stores.update(store.id, **{field: value}),
                    f"`{field}`",
                )
        await self.refused(BadRequestError, "invalid_request_error", lambda: self.stores.create(name=None), "`name`")
        edge = {"name": "é" * 255, "description": "é" * 1024, "metadata": {"é" * 64: "é" * 512}}
        stored = await self.new_store(**edge)
        self.assertEqual({field: getattr(stored, field) for field in edge}, edge)
        self.assertEqual(await do(self.stores.retrieve(store.id)), store)

    async def test_unknown_body_fields_are_refused_by_name(self):
        store = await self.new_store()
        for call in [
            lambda: self.stores.create(name="a", extra_body={"descripton": "b"}),
            lambda: self.stores.update(store.id, extra_body={"descripton": "b"}),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, "`descripton`")

    async def test_bodies_other_than_objects_are_refused(self):
        store = await self.new_store()
        path = f"/v1/memory_stores/{store.id}"
        for route, body in [
            ("/v1/memory_stores", ["notes", None, None, None, None]),
            ("/v1/memory_stores", "notes"),
            (path, ["notes", None, None, None, None]),
            (path, []),
            (f"{path}/archive", []),
            (f"{path}/archive", "x"),
            (f"{path}/archive", {"force": True}),
        ]:
            with self.subTest(route=route, body=body):
                await self.refused(
                    BadRequestError,
                    "invalid_request_error",
                    lambda: self.client.post(route, body=body, cast_to=object),
                    "body",
                )
        self.assertEqual(await do(self.stores.retrieve(store.id)), store)

    async def test_archive_accepts_no_body_an_empty_body_or_an_empty_object(self):
        for headers in [{}, {"content-type": "application/json"}, {"content-type": "text/plain"}]:
            for content in [None, b"", b"{}", b" {} "]:
                store = await self.new_store()
                archived = await do(
                    self.client.post(
                        f"/v1/memory_stores/{store.id}/archive",
                        content=content,
                        cast_to=BetaManagedAgentsMemoryStore,
                        options={"headers": headers},
                    )
                )
                self.assertIsNotNone(archived.archived_at, (headers, content))

    async def test_misspelt_parameter_deletes_no_store(self):
        store = await self.new_store()
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.stores.delete(store.id, extra_query={"dry_run": "true"}),
            "dry_run",
        )
        self.assertEqual(await do(self.stores.retrieve(store.id)), store)

    async def test_sensitive_data_policy_is_one_of_three(self):
        for policy in ["redact", "reject", "off"]:
            store = await self.new_store(extra_body={"sensitive_data_policy": policy})
            self.assertEqual(store.sensitive_data_policy, policy)
            kept = await do(self.stores.update(store.id, extra_body={"sensitive_data_policy": None}))
            self.assertEqual(kept.sensitive_data_policy, policy)
        store = await do(self.stores.update(store.id, extra_body={"sensitive_data_policy": "reject"}))
        self.assertEqual(store.sensitive_data_policy, "reject")
        for value in ["on", "", 1, []]:
            await self.refused(
                BadRequestError,
                "invalid_request_error",
                lambda: self.stores.update(store.id, extra_body={"sensitive_data_policy": value}),
                "`sensitive_data_policy`",
            )

    async def test_expiry_is_set_and_zero_clears_it(self):
        store = await self.new_store(extra_body={"expires_unused_after": 3600})
        self.assertEqual(store.expires_unused_after, 3600)
        longer = await do(self.stores.update(store.id, extra_body={"expires_unused_after": 86_400}))
        self.assertEqual(longer.expires_unused_after, 86_400)
        kept = await do(self.stores.update(store.id, name="kept", extra_body={"expires_unused_after": None}))
        self.assertEqual(kept.expires_unused_after, 86_400)
        cleared = await do(self.stores.update(store.id, extra_body={"expires_unused_after": 0}))
        self.assertIsNone(cleared.expires_unused_after)
        for value in [-1, 1.5, "60", 10**18]:
            await self.refused(
                BadRequestError,
                "invalid_request_error",
                lambda: self.stores.update(store.id, extra_body={"expires_unused_after": value}),
                "`expires_unused_after`",
            )

    async def test_archived_store_allows_only_reads_and_deletions(self):
        store = await self.new_store()
        memory = await self.new_memory(store, content="first\n")
        first_version = memory.memory_version_id
        memory = await do(self.memories.update(memory.id, memory_store_id=store.id, content="second\n"))
        archived = await do(self.stores.archive(store.id))
        self.assertIsNotNone(archived.archived_at)
        self.assertEqual(archived.updated_at, archived.archived_at)
        again = await do(self.stores.archive(store.id))
        self.assertEqual((again.archived_at, again.updated_at), (archived.archived_at, archived.updated_at))
        for call in [
            lambda: self.stores.update(store.id, name="b"),
            lambda: self.memories.create(store.id, path="/b", content="b"),
            lambda: self.memories.update(memory.id, memory_store_id=store.id, content="b"),
            lambda: self.client.post(
                f"/v1/memory_stores/{store.id}/memory_versions/{first_version}/restore", body={}, cast_to=object
            ),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, "archived")
        read = await do(self.memories.retrieve(memory.id, memory_store_id=store.id))
        self.assertEqual(read.content, "second\n")
        self.assertEqual(len(await everything(self.memories.list(store.id))), 1)
        redacted = await do(self.versions.redact(first_version, memory_store_id=store.id))
        self.assertIsNotNone(redacted.redacted_at)
        await do(self.memories.delete(memory.id, memory_store_id=store.id))
        self.assertEqual(await everything(self.memories.list(store.id)), [])
        self.assertEqual((await do(self.stores.delete(store.id))).id, store.id)

    async def test_deleted_store_and_its_memories_are_not_found(self):
        store = await self.new_store()
        memory = await self.new_memory(store)
        deleted = await do(self.stores.delete(store.id))
        self.assertEqual(deleted.to_dict(), {"id": store.id, "type": "memory_store_deleted"})
        for call in [
            lambda: self.stores.retrieve(store.id),
            lambda: self.stores.update(store.id, name="b"),
            lambda: self.stores.archive(store.id),
            lambda: self.stores.delete(store.id),
            lambda: self.memories.list(store.id),
            lambda: self.memories.create(store.id, path="/b", content="b"),
            lambda: self.memories.retrieve(memory.id, memory_store_id=store.id),
            lambda: self.versions.list(store.id),
            lambda: self.versions.retrieve(memory.memory_version_id, memory_store_id=store.id),
        ]:
            await self.refused(NotFoundError, "not_found_error", call)
        listed = await everything(self.stores.list(include_archived=True, created_at_gte=store.created_at))
        self.assertNotIn(store.id, [listed_store.id for listed_store in listed])

    async def test_list_pages_through_all_newest_first(self):
        made = [await self.new_store(f"store {n}") for n in range(7)]
        window = {"created_at_gte": made[0].created_at, "created_at_lte": made[-1].created_at}
        listed = await everything(self.stores.list(limit=3, **window))
        self.assertEqual(listed, made[::-1])
        by_page = await pages(self.stores.list(limit=3, **window))
        self.assertEqual([store for page in by_page for store in page.data], made[::-1])
        self.assertEqual([len(page.data) for page in by_page][:2], [3, 3])
        for page in by_page[:-1]:
            self.assertTrue(page.next_page.startswith("page_"), page.next_page)
        self.assertIsNone(by_page[-1].next_page)
        # A cursor is valid with another limit.
        first = await do(self.stores.list(limit=2, **window))
        rest = await do(self.stores.list(limit=100, page=first.next_page, **window))
        self.assertEqual(first.data + rest.data, made[::-1])

    async def test_list_is_filtered_by_creation_time_of_stores(self):
        made = [await self.new_store(f"store {n}") for n in range(3)]
        middle = made[1]
        for time in ways_to_write(middle.created_at):
            only = await everything(self.stores.list(created_at_gte=time, created_at_lte=time))
            self.assertEqual(only, [middle], time)
        after = middle.created_at + MICROSECOND
        self.assertNotIn(middle, await everything(self.stores.list(created_at_gte=after)))
        before = middle.created_at - MICROSECOND
        self.assertNotIn(middle, await everything(self.stores.list(created_at_lte=before, limit=100)))
        # The names without brackets, and a bare day, which is its midnight.
        plain = {"created_at_gte": made[0].created_at.isoformat(), "created_at_lte": made[0].created_at.isoformat()}
        self.assertEqual(await everything(self.stores.list(extra_query=plain)), [made[0]])
        since = await everything(self.stores.list(created_at_gte=middle.created_at.date().isoformat(), limit=100))
        self.assertLessEqual({store.id for store in made}, {store.id for store in since})
        self.assertEqual(await everything(self.stores.list(created_at_lte="2001-01-01")), [])
        always = {"created_at_gte": datetime.min, "created_at_lte": datetime.max}
        self.assertEqual((await do(self.stores.list(limit=3, **always))).data, made[::-1])
        for name in ["created_at_gte", "created_at_lte"]:
            await self.refused(
                BadRequestError,
                "invalid_request_error",
                lambda: self.stores.list(**{name: "yesterday"}),
                "created_at",
            )

    async def test_archived_stores_are_listed_on_request(self):
        kept = await self.new_store("kept")
        archived = await do(self.stores.archive((await self.new_store("archived")).id))
        window = {"created_at_gte": kept.created_at, "created_at_lte": archived.created_at}
        self.assertEqual(await everything(self.stores.list(**window)), [kept])
        self.assertEqual(await everything(self.stores.list(include_archived=False, **window)), [kept])
        both = await everything(self.stores.list(include_archived=True, limit=1, **window))
        self.assertEqual(both, [archived, kept])

    async def test_page_has_1_to_100_items_and_20_by_default(self):
        made = [await self.new_store(f"store {n}") for n in range(21)]
        window = {"created_at_gte": made[0].created_at}
        self.assertEqual(len((await do(self.stores.list(**window))).data), 20)
        self.assertEqual(len((await do(self.stores.list(limit=100, **window))).data), 21)
        for limit in [0, 101, -1, "many"]:
            await self.refused(
                BadRequestError, "invalid_request_error", lambda: self.stores.list(limit=limit), "limit"
            )

    async def test_cursor_is_valid_only_for_its_list(self):
        made = [await self.new_store(f"store {n}") for n in range(3)]
        window = {"created_at_gte": made[0].created_at}
        cursor = (await do(self.stores.list(limit=1, **window))).next_page
        middle = len(cursor) // 2
        changed = cursor[:middle] + ("A" if cursor[middle] != "A" else "B") + cursor[middle + 1 :]
        other = self.client_with(another_key("OTHER")).beta.memory_stores
        for call in [
            lambda: self.stores.list(page="page_nonsense", **window),
            lambda: self.stores.list(page="x", **window),
            lambda: self.stores.list(page=changed, **window),
            lambda: self.stores.list(page=cursor),
            lambda: self.stores.list(page=cursor, include_archived=True, **window),
            lambda: self.memories.list(made[0].id, page=cursor),
            lambda: other.list(page=cursor, **window),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, "page")

    async def test_raw_and_streaming_responses_have_request_and_workspace_ids(self):
        raw = await do(self.stores.with_raw_response.create(name="raw"))
        self.assertEqual(raw.status_code, 200)
        store = await do(raw.parse())
        self.assertEqual(raw.headers["anthropic-workspace-id"], WORKSPACE_ID)
        self.assertRegex(raw.headers["request-id"], ID.format("req"))
        self.assertEqual((raw.request_id, raw.workspace_id), (raw.headers["request-id"], WORKSPACE_ID))
        self.assertEqual((store._request_id, store._workspace_id), (raw.request_id, WORKSPACE_ID))
        body = await do(raw.json())
        for time in ["created_at", "updated_at"]:
            self.assertRegex(body[time], TIME)
        self.assertEqual(set(body), FIELDS)

        self.assertEqual(
            await streamed(self.stores.with_streaming_response.retrieve(store.id), lambda response: response.parse()),
            store,
        )
        headers = await streamed(
            self.stores.with_streaming_response.list(limit=1), lambda response: dict(response.headers)
        )
        self.assertEqual(headers["anthropic-workspace-id"], WORKSPACE_ID)
        self.assertNotEqual(headers["request-id"], raw.request_id)
        for call in [
            lambda: self.stores.with_raw_response.retrieve(store.id),
            lambda: self.stores.with_raw_response.update(store.id, name="b"),
            lambda: self.stores.with_raw_response.list(limit=1),
            lambda: self.stores.with_raw_response.archive(store.id),
            lambda: self.stores.with_raw_response.delete(store.id),
        ]:
            raw = await do(call())
            self.assertEqual(raw.headers["anthropic-workspace-id"], WORKSPACE_ID)
            self.assertRegex(raw.request_id, ID.format("req"))

    async def test_repeated_idempotency_key_creates_one_store(self):
        headers = self.new_idempotency_key()
        store = await self.new_store("once", metadata={"k": "v"}, extra_headers=headers)
        again = await self.new_store("once", metadata={"k": "v"}, extra_headers=headers)
        self.assertEqual(again, store)
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.stores.create(name="twice", extra_headers=headers),
        )
        listed = await everything(self.stores.list(created_at_gte=store.created_at))
        self.assertEqual(listed, [store])
        # Another credential's key of the same name is another key.
        other = self.client_with(another_key("OTHER")).beta.memory_stores
        theirs = await do(other.create(name="once", metadata={"k": "v"}, extra_headers=headers))
        self.assertNotEqual(theirs.id, store.id)

    async def test_workspace_id_must_match_the_key(self):
        store = await do(self.stores.create(name="notes", workspace_id=WORKSPACE_ID))
        self.assertEqual(await do(self.stores.retrieve(store.id, workspace_id=WORKSPACE_ID)), store)
        for workspace_id in ["wrkspc_00000000000000000000000001", "wrkspc_x"]:
            for call in [
                lambda: self.stores.create(name="notes", workspace_id=workspace_id),
                lambda: self.stores.retrieve(store.id, workspace_id=workspace_id),
                lambda: self.stores.list(workspace_id=workspace_id),
                lambda: self.memories.list(store.id, workspace_id=workspace_id),
            ]:
                await self.refused(PermissionDeniedError, "permission_error", call)

    async def test_unknown_credentials_are_401(self):
        for client in [
            self.client_with("ks_live_nonsense"),
            self.client_with(API_KEY[:-1] + ("a" if API_KEY[-1] != "a" else "b")),
        ]:
            error = await self.refused(
                AuthenticationError, "authentication_error", lambda: client.beta.memory_stores.list()
            )
            self.assertIsNone(error.workspace_id)

    async def test_key_as_bearer_token_works_too(self):
        client = self.client_class(base_url=self.client.base_url, auth_token=API_KEY)
        store = await do(client.beta.memory_stores.create(name="bearer"))
        self.assertEqual((await do(self.stores.retrieve(store.id))).name, "bearer")
        await do(client.close())

    async def test_read_only_key_can_only_read(self):
        store = await self.new_store()
        memory = await self.new_memory(store, content="first\n")
        old = memory.memory_version_id
        await do(self.memories.update(memory.id, memory_store_id=store.id, content="second\n"))
        reader = self.client_with(another_key("READER")).beta.memory_stores
        self.assertEqual((await do(reader.retrieve(store.id))).name, "notes")
        self.assertEqual((await do(reader.memories.retrieve(memory.id, memory_store_id=store.id))).content, "second\n")
        self.assertEqual(len(await everything(reader.memories.list(store.id))), 1)
        self.assertEqual(len(await everything(reader.memory_versions.list(store.id))), 2)
        for call in [
            lambda: reader.create(name="b"),
            lambda: reader.archive(store.id),
            lambda: reader.delete(store.id),
            lambda: reader.memories.create(store.id, path="/b", content="b"),
            lambda: reader.memories.update(memory.id, memory_store_id=store.id, content="b"),
            lambda: reader.memories.delete(memory.id, memory_store_id=store.id),
            lambda: reader.memory_versions.redact(old, memory_store_id=store.id),
        ]:
            error = await self.refused(PermissionDeniedError, "permission_error", call)
            self.assertEqual(error.workspace_id, WORKSPACE_ID)

    async def test_other_tenants_objects_are_not_found(self):
        store = await self.new_store()
        memory = await self.new_memory(store)
        other = self.client_with(another_key("OTHER")).beta.memory_stores

        def calls(stores, store_id, memory_id, version_id):
            return [
                lambda: stores.retrieve(store_id),
                lambda: stores.update(store_id, name="b"),
                lambda: stores.archive(store_id),
                lambda: stores.delete(store_id),
                lambda: stores.memories.create(store_id, path="/b", content="b"),
                lambda: stores.memories.list(store_id),
                lambda: stores.memories.retrieve(memory_id, memory_store_id=store_id),
                lambda: stores.memories.update(memory_id, memory_store_id=store_id, content="b"),
                lambda: stores.memories.delete(memory_id, memory_store_id=store_id),
                lambda: stores.memory_versions.list(store_id),
                lambda: stores.memory_versions.retrieve(version_id, memory_store_id=store_id),
                lambda: stores.memory_versions.redact(version_id, memory_store_id=store_id),
            ]

        foreign = calls(other, store.id, memory.id, memory.memory_version_id)
        never = calls(other, NO_STORE, NO_MEMORY, NO_VERSION)
        for call, call_of_none in zip(foreign, never):
            error = await self.refused(NotFoundError, "not_found_error", call)
            error_of_none = await self.refused(NotFoundError, "not_found_error", call_of_none)
            self.assertEqual(error.api_message, error_of_none.api_message)
        self.assertEqual(await do(self.memories.retrieve(memory.id, memory_store_id=store.id, view="basic")), memory)
        since = await everything(other.list(created_at_gte=store.created_at))
        self.assertEqual(since, [])

    async def test_unknown_routes_methods_and_media_types_get_the_error_envelope(self):
        store = await self.new_store()
        path = f"/v1/memory_stores/{store.id}"
        await self.refused(
            NotFoundError, "not_found_error", lambda: self.client.get(f"{path}/nothing", cast_to=object)
        )
        error = await self.refused(
            APIStatusError, "invalid_request_error", lambda: self.client.put(path, body={}, cast_to=object)
        )
        self.assertEqual(error.status_code, 405)
        error = await self.refused(
            APIStatusError,
            "invalid_request_error",
            lambda: self.client.post(
                path,
                content=b"name=b",
                cast_to=object,
                options={"headers": {"content-type": "application/x-www-form-urlencoded"}},
            ),
        )
        self.assertEqual(error.status_code, 415)

    async def test_body_over_the_limit_is_413(self):
        store = await self.new_store()
        body = b'{"path":"/a","content":"%s"}' % (b"x" * (6 * 102_400 + 65 * 1024))
        await self.refused(
            ContentTooLargeError,
            "invalid_request_error",
            lambda: self.client.post(
                f"/v1/memory_stores/{store.id}/memories",
                content=body,
                cast_to=object,
                options={"headers": {"content-type": "application/json"}},
            ),
        )

    async def test_quota_error_is_429_and_not_retried(self):
        proxy = self.proxy()
        client = self.client_with(another_key("LIMITED"), base_url=proxy.url)
        stores = client.beta.memory_stores
        store = await do(stores.create(name=f"of {self.id()}"))
        for n in range(3):
            await do(stores.memories.create(store.id, path=f"/{n}", content="x" * 10))
        proxy.spoil()
        error = await self.refused(
            RateLimitError, "rate_limit_error", lambda: stores.memories.create(store.id, path="/4", content="x")
        )
        self.assert_not_to_be_retried(error)
        first = (await do(stores.memories.list(store.id, limit=1))).data[0]
        error = await self.refused(
            RateLimitError,
            "rate_limit_error",
            lambda: stores.memories.update(first.id, memory_store_id=store.id, content="x" * 90),
        )
        self.assert_not_to_be_retried(error)
        self.assertEqual(proxy.seen(), [("POST", 429), ("GET", 200), ("POST", 429)])
        await do(stores.delete(store.id))


class StoresOfTheSyncClient(StoreFacts, SyncClient):
    pass


class StoresOfTheAsyncClient(StoreFacts, AsyncClient):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
