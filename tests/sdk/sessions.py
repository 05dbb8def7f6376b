"""Sessions through the official Python SDK."""

import unittest

from anthropic import AuthenticationError, BadRequestError, NotFoundError, PermissionDeniedError
from anthropic.types.beta import BetaManagedAgentsDeletedSession, BetaManagedAgentsSession
from anthropic.types.beta.sessions import (
    BetaManagedAgentsAgentToolUseEvent,
    BetaManagedAgentsDeleteSessionResource,
    BetaManagedAgentsMemoryStoreResource,
)

from support import (
    NO_STORE,
    TIME,
    AsyncClient,
    SyncClient,
    another_key,
    do,
    everything,
    pages,
)

NO_SESSION = "sesn_00000000000000000000000001"
#: The fields of the SDK's session, and our own: the token, only on creation, and the prompt.
FIELDS = {
    "id",
    "agent",
    "archived_at",
    "budget",
    "created_at",
    "deployment_id",
    "environment_id",
    "metadata",
    "outcome_evaluations",
    "resources",
    "stats",
    "status",
    "title",
    "type",
    "updated_at",
    "usage",
    "vault_ids",
    "system_prompt",
}


class SessionFacts:
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.sessions = self.client.beta.sessions
        self.store = await self.new_store("Team Rules", description="What we agreed on.")

    def attached(self, access="read_write", **fields):
        return {"type": "memory_store", "memory_store_id": self.store.id, "access": access, **fields}

    async def open(self, *resources, agent="agent_1", **fields):
        return await do(
            self.sessions.create(agent=agent, environment_id="env_1", resources=list(resources), **fields)
        )

    def holder_of(self, session):
        """A client as the SDK's worker makes it: with only the session's token."""
        return self.client_with(key=None, auth_token=session.token)

    async def test_create_and_retrieve_return_the_whole_session(self):
        session = await self.open(
            self.attached("read_only", instructions="Read them."),
            title="Fix the build",
            metadata={"user": "ü"},
            vault_ids=["vlt_1"],
        )
        self.assertIsInstance(session, BetaManagedAgentsSession)
        self.assertEqual(set(session.to_dict()), FIELDS | {"token"})
        self.assert_id("sesn", session.id)
        self.assertEqual((session.type, session.status, session.title), ("session", "idle", "Fix the build"))
        self.assertEqual((session.metadata, session.vault_ids), ({"user": "ü"}, ["vlt_1"]))
        self.assertEqual(session.environment_id, "env_1")
        agent = session.agent
        self.assertEqual((agent.id, agent.type, agent.name), ("agent_1", "agent", ""))
        self.assertEqual((agent.tools, agent.skills, agent.mcp_servers), ([], [], []))
        self.assertEqual(agent.execution_identity.type, "service_account")
        self.assertEqual((session.outcome_evaluations, session.usage.input_tokens), ([], None))
        resource = session.resources[0]
        self.assertIsInstance(resource, BetaManagedAgentsMemoryStoreResource)
        self.assertEqual(resource.memory_store_id, self.store.id)
        self.assertEqual((resource.name, resource.description), ("Team Rules", "What we agreed on."))
        self.assertEqual((resource.access, resource.instructions), ("read_only", "Read them."))
        self.assertEqual(resource.mount_path, "/mnt/memory/team-rules")
        self.assertIn("/memories/team-rules", session.system_prompt)
        raw = await do(self.sessions.with_raw_response.retrieve(session.id))
        found = await do(raw.parse())
        self.assertEqual(set(found.to_dict()), FIELDS)
        self.assertEqual(found.to_dict(), {name: value for name, value in session.to_dict().items() if name != "token"})
        self.assertRegex(raw.http_response.json()["created_at"], TIME)

    async def test_agent_is_accepted_in_every_form_of_the_sdk(self):
        overrides = {
            "type": "agent_with_overrides",
            "id": "agent_1",
            "version": 3,
            "model": {"id": "claude-test", "effort": "high"},
            "system": "Be kind.",
            "tools": [{"type": "custom", "name": "x", "description": "x", "input_schema": {"type": "object"}}],
            "skills": [{"type": "anthropic", "skill_id": "pdf", "version": "1"}],
            "mcp_servers": [{"type": "url", "name": "m", "url": "https://example.com"}],
        }
        for agent in ["agent_1", {"type": "agent", "id": "agent_1"}, {"type": "agent", "id": "agent_1", "version": 3}]:
            session = await self.open(agent=agent)
            self.assertEqual((session.agent.id, session.agent.type), ("agent_1", "agent"))
        session = await self.open(agent=overrides)
        self.assertEqual((session.agent.version, session.agent.system), (3, "Be kind."))
        self.assertEqual((session.agent.model.id, session.agent.model.effort.type), ("claude-test", "high"))
        self.assertEqual(session.agent.tools[0].name, "x")
        self.assertEqual(session.agent.skills[0].skill_id, "pdf")
        self.assertEqual(session.agent.mcp_servers[0].url, "https://example.com")

    async def test_update_archive_and_delete(self):
        session = await self.open(metadata={"a": "1", "b": "2"})
        changed = await do(self.sessions.update(session.id, title="t", metadata={"a": None, "c": "3"}))
        self.assertEqual((changed.title, changed.metadata), ("t", {"b": "2", "c": "3"}))
        self.assertGreater(changed.updated_at, session.updated_at)
        archived = await do(self.sessions.archive(session.id))
        self.assertEqual(archived.status, "terminated")
        self.assertIsNotNone(archived.archived_at)
        self.assertEqual(await do(self.sessions.archive(session.id)), archived)
        await self.refused(
            BadRequestError, "invalid_request_error", lambda: self.sessions.update(session.id, title="x"), "archived"
        )
        deleted = await do(self.sessions.delete(session.id))
        self.assertIsInstance(deleted, BetaManagedAgentsDeletedSession)
        self.assertEqual((deleted.id, deleted.type), (session.id, "session_deleted"))
        for gone in [session.id, NO_SESSION]:
            await self.refused(NotFoundError, "not_found_error", lambda: self.sessions.retrieve(gone))

    async def test_list_goes_over_all_pages_with_every_filter(self):
        ids = [(await self.open(self.attached(), agent=f"agent_of_{self.store.id}")).id for _ in range(5)]
        archived = (await self.open(self.attached())).id
        await do(self.sessions.archive(archived))

        async def listed(**filters):
            return [item.id for item in await everything(self.sessions.list(memory_store_id=self.store.id, **filters))]

        self.assertEqual(await listed(limit=2), ids[::-1])
        self.assertEqual(await listed(limit=2, order="asc"), ids)
        self.assertEqual(await listed(include_archived=True), [archived, *ids[::-1]])
        self.assertEqual(await listed(statuses=["terminated"]), [archived])
        self.assertEqual(await listed(statuses=["idle", "terminated"]), [archived, *ids[::-1]])
        self.assertEqual(await listed(agent_id=f"agent_of_{self.store.id}"), ids[::-1])
        third = await do(self.sessions.retrieve(ids[2]))
        self.assertEqual(await listed(created_at_gt=third.created_at), ids[:2:-1])
        self.assertEqual(await listed(created_at_gte=third.created_at), ids[:1:-1])
        self.assertEqual(await listed(created_at_lt=third.created_at), ids[1::-1])
        self.assertEqual(await listed(created_at_lte=third.created_at), ids[2::-1])
        self.assertEqual(len(await pages(self.sessions.list(memory_store_id=self.store.id, limit=2))), 3)
        self.assertEqual(await listed(deployment_id="depl_1"), [])

    async def test_resources_are_listed_retrieved_and_detached(self):
        other = await self.new_store("other")
        session = await self.open(self.attached(), {"type": "memory_store", "memory_store_id": other.id})
        resources = self.sessions.resources
        listed = await everything(resources.list(session.id))
        self.assertEqual(listed, session.resources)
        self.assertEqual(await everything(resources.list(session.id, limit=1)), listed)
        self.assertEqual(listed[1].access, "read_write")
        for name in [listed[1].id, other.id]:
            found = await do(resources.retrieve(name, session_id=session.id))
            self.assertEqual(found, listed[1])
        changed = await do(
            resources.update(
                listed[1].id,
                session_id=session.id,
                authorization_token=None,
                extra_body={"access": "read_only", "instructions": "Only look."},
            )
        )
        self.assertEqual((changed.access, changed.instructions), ("read_only", "Only look."))
        gone = await do(resources.delete(other.id, session_id=session.id))
        self.assertIsInstance(gone, BetaManagedAgentsDeleteSessionResource)
        self.assertEqual((gone.id, gone.type), (listed[1].id, "session_resource_deleted"))
        await self.refused(
            NotFoundError, "not_found_error", lambda: resources.retrieve(other.id, session_id=session.id)
        )
        # The SDK's method for adding resources is for files, which are refused by type.
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: resources.add(session.id, type="file", file_id="file_1"),
            "`type`",
        )
        added = await do(
            self.client.post(
                f"/v1/sessions/{session.id}/resources",
                body={"type": "memory_store", "memory_store_id": other.id},
                cast_to=BetaManagedAgentsMemoryStoreResource,
            )
        )
        self.assertEqual(added.mount_path, "/mnt/memory/other")

    async def test_resources_other_than_memory_stores_are_refused(self):
        for fields, named in [
            ({"initial_events": [{"type": "user.message", "content": [{"type": "text", "text": "x"}]}]}, "initial_events"),
            ({"budget": {"max_list_cost": {"amount": "1", "currency": "USD"}}}, "budget"),
        ]:
            await self.refused(
                BadRequestError, "invalid_request_error", lambda: self.open(**fields), f"`{named}`"
            )
        await self.refused(
            BadRequestError,
            "invalid_request_error",
            lambda: self.open({"type": "file", "file_id": "file_1"}),
            "resources[0]",
        )
        nowhere = {"type": "memory_store", "memory_store_id": NO_STORE}
        await self.refused(NotFoundError, "not_found_error", lambda: self.open(nowhere))
        other = self.client_with(another_key("OTHER")).beta.sessions
        session = await self.open()
        await self.refused(NotFoundError, "not_found_error", lambda: other.retrieve(session.id))
        reader = self.client_with(another_key("READER")).beta.sessions
        await self.refused(PermissionDeniedError, "permission_error", lambda: reader.archive(session.id))

    async def test_session_token_works_for_its_stores_until_the_session_ends(self):
        other = await self.new_store("read only")
        session = await self.open(
            self.attached(), {"type": "memory_store", "memory_store_id": other.id, "access": "read_only"}
        )
        holder = self.holder_of(session)
        stores = holder.beta.memory_stores
        memory = await do(stores.memories.create(self.store.id, path="/a.md", content="x"))
        version = await do(self.versions.retrieve(memory.memory_version_id, memory_store_id=self.store.id))
        self.assertEqual((version.created_by.type, version.created_by.session_id), ("session_actor", session.id))
        self.assertEqual((await do(holder.beta.sessions.retrieve(session.id))).id, session.id)
        await self.refused(
            PermissionDeniedError,
            "permission_error",
            lambda: stores.memories.create(other.id, path="/a.md", content="x"),
        )
        unattached = await self.new_store("unattached")
        await self.refused(NotFoundError, "not_found_error", lambda: stores.memories.list(unattached.id))
        await self.refused(PermissionDeniedError, "permission_error", lambda: stores.archive(self.store.id))
        await do(self.sessions.archive(session.id))
        await self.refused(
            AuthenticationError, "authentication_error", lambda: holder.beta.sessions.retrieve(session.id)
        )

    async def test_events_are_tool_calls(self):
        session = await self.open(self.attached())
        holder = self.holder_of(session)
        for name in ["a", "b", "c"]:
            call = {"command": "create", "path": f"/memories/team-rules/{name}.md", "file_text": "a secret"}
            await do(holder.post(f"/v1/sessions/{session.id}/tool_calls", body=call, cast_to=object))
        events = await everything(self.sessions.events.list(session.id, limit=2))
        self.assertEqual([type(event) for event in events], [BetaManagedAgentsAgentToolUseEvent] * 3)
        self.assertEqual([event.input["path"][-4:] for event in events], ["a.md", "b.md", "c.md"])
        self.assertEqual(events[0].input["file_text"], {"size_bytes": 8})
        self.assertEqual({event.evaluated_permission for event in events}, {"allow"})
        self.assertEqual({event.evaluation.type for event in events}, {"always_allow"})
        self.assertEqual((await do(self.sessions.events.list(session.id, limit=1000))).data, events)
        newest = await everything(self.sessions.events.list(session.id, order="desc", types=["agent.tool_use"]))
        self.assertEqual(newest, events[::-1])
        self.assertEqual(await everything(self.sessions.events.list(session.id, types=["user.message"])), [])

    async def test_events_are_followed_as_they_happen(self):
        session = await self.open(self.attached())
        holder = self.holder_of(session)
        stream = await do(self.sessions.events.stream(session.id))
        followed = []
        for name in ["a", "b"]:
            call = {"command": "view", "path": f"/memories/team-rules/{name}.md"}
            await do(holder.post(f"/v1/sessions/{session.id}/tool_calls", body=call, cast_to=object))
            followed.append(await anext(stream) if hasattr(stream, "__anext__") else next(stream))
        await do(stream.close())
        self.assertEqual([type(event) for event in followed], [BetaManagedAgentsAgentToolUseEvent] * 2)
        self.assertEqual(followed, await everything(self.sessions.events.list(session.id)))


class WithTheSyncClient(SessionFacts, SyncClient):
    pass


class WithTheAsyncClient(SessionFacts, AsyncClient):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
