"""Lists of memories through the official Python SDK."""

import unittest

from anthropic import BadRequestError

from support import AsyncClient, OneStore, SyncClient, do, everything, pages, paths


class ListFacts(OneStore):
    async def list(self, **options):
        return await everything(self.memories.list(self.store.id, **options))

    async def test_list_is_ordered_by_path_bytes_over_pages(self):
        names = ["/Z", "/a", "/a-b", "/a.md", "/b/a", "/b/ü", "/b-c", "/é", "/\U0001f9e0", "/\uffee"]
        for name in reversed(names):
            await self.create(name)
        in_order = sorted(names, key=lambda name: name.encode())
        for limit in [1, 3, 100]:
            self.assertEqual(paths(await self.list(limit=limit)), in_order)
        by_page = await pages(self.memories.list(self.store.id, limit=3))
        self.assertEqual(paths(item for page in by_page for item in page.data), in_order)
        self.assertTrue(all(page.data for page in by_page[:-1]))
        self.assertIsNone(by_page[-1].next_page)

    async def test_list_of_a_folder_supports_depth(self):
        for path in ["/notes/todo.md", "/notes/old/a", "/notes/old/b/c", "/notes-archive/todo.md", "/top"]:
            await self.create(path)
        under_notes = ["/notes/old/a", "/notes/old/b/c", "/notes/todo.md"]
        self.assertEqual(paths(await self.list(path_prefix="/notes/", limit=2)), under_notes)
        self.assertEqual(paths(await self.list(path_prefix="/notes/", depth=0)), under_notes)
        self.assertEqual(len(await self.list(path_prefix="/")), 5)
        self.assertEqual(await self.list(path_prefix="/nowhere/"), [])
        for limit in [1, 2, 100]:
            children = await self.list(depth=1, limit=limit)
            self.assertEqual(
                [(item.type, item.path) for item in children],
                [("memory_prefix", "/notes-archive/"), ("memory_prefix", "/notes/"), ("memory", "/top")],
            )
            children = await self.list(depth=1, path_prefix="/notes/", limit=limit)
            self.assertEqual(
                [(item.type, item.path) for item in children],
                [("memory_prefix", "/notes/old/"), ("memory", "/notes/todo.md")],
            )
        prefix = (await self.list(depth=1))[0]
        self.assertEqual(prefix.to_dict(), {"type": "memory_prefix", "path": "/notes-archive/"})
        for options, named in [
            ({"path_prefix": "/notes"}, "path_prefix"),
            ({"path_prefix": "notes/"}, "path_prefix"),
            ({"path_prefix": ""}, "path_prefix"),
            ({"path_prefix": "/a//"}, "path_prefix"),
            ({"depth": 2}, "depth"),
            ({"depth": -1}, "depth"),
            ({"depth": "all"}, "depth"),
            ({"limit": 0}, "limit"),
            ({"limit": 101}, "limit"),
        ]:
            with self.subTest(**options):
                await self.refused(
                    BadRequestError,
                    "invalid_request_error",
                    lambda: self.memories.list(self.store.id, **options),
                    named,
                )

    async def test_page_has_20_items_by_default_and_at_most_20_with_content(self):
        names = [f"/{n:02}" for n in range(23)]
        for name in names:
            await self.create(name, content=f"of {name}")
        self.assertEqual(paths((await do(self.memories.list(self.store.id))).data), names[:20])
        self.assertEqual(paths((await do(self.memories.list(self.store.id, limit=100))).data), names)
        full = await pages(self.memories.list(self.store.id, limit=100, view="full"))
        self.assertEqual([len(page.data) for page in full], [20, 3])
        contents = [item.content for page in full for item in page.data]
        self.assertEqual(contents, [f"of {name}" for name in names])
        smaller = await pages(self.memories.list(self.store.id, limit=10, view="full"))
        self.assertEqual([len(page.data) for page in smaller], [10, 10, 3])

    async def test_unchanged_items_are_listed_once_during_changes(self):
        memories = {name: await self.create(f"/{name}") for name in "bdfhj"}
        page = await do(self.memories.list(self.store.id, limit=2))
        seen = paths(page.data)
        self.assertEqual(seen, ["/b", "/d"])
        await self.create("/a")
        await self.create("/i")
        for name in "df":
            await do(self.memories.delete(memories[name].id, memory_store_id=self.store.id))
        await self.update(memories["b"], content="edited")
        while page.has_next_page():
            page = await do(page.get_next_page())
            seen += paths(page.data)
        self.assertEqual(seen, ["/b", "/d", "/h", "/i", "/j"])

    async def test_cursor_is_valid_only_for_its_list(self):
        for name in "abc":
            await self.create(f"/{name}")
        other = await self.new_store()
        await do(self.memories.create(other.id, path="/a", content=""))
        cursor = (await do(self.memories.list(self.store.id, limit=1))).next_page
        for call in [
            lambda: self.memories.list(other.id, page=cursor),
            lambda: self.memories.list(self.store.id, page=cursor, depth=1),
            lambda: self.memories.list(self.store.id, page=cursor, path_prefix="/a/"),
            lambda: self.memories.list(self.store.id, page=cursor + "x"),
            lambda: self.versions.list(self.store.id, page=cursor),
        ]:
            await self.refused(BadRequestError, "invalid_request_error", call, "page")
        rest = await do(self.memories.list(self.store.id, page=cursor, limit=50))
        self.assertEqual(paths(rest.data), ["/b", "/c"])


class ListsOfTheSyncClient(ListFacts, SyncClient):
    pass


class ListsOfTheAsyncClient(ListFacts, AsyncClient):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
