"""Every step of the conformance file, through the SDK's tool runner and through `handle`."""

import json
import os
import pathlib
import unittest

from fakes import calls
from tools import ToolTests, WithAsync, WithSync, do

FILE = pathlib.Path(__file__).parents[3] / "tests" / "conformance" / "memory_tool.json"
#: For each sequence with limits, two tenants that have them: one for each class of tools.
TENANTS = json.loads(os.environ["KEEPSAKE_CONFORMANCE_TENANTS"])


def expand(value):
    """Joins the pieces of long strings."""
    if isinstance(value, list):
        return [expand(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$concat" in value:
        pieces = (each if isinstance(each, str) else each["repeat"] * each["times"] for each in value["$concat"])
        return "".join(pieces)
    return {name: expand(each) for name, each in value.items()}


class Conformance:
    async def test_each_step_has_its_result(self):
        for sequence in json.loads(FILE.read_text())["sequences"]:
            with self.subTest(sequence["name"]):
                await self.run_sequence(sequence)

    async def run_sequence(self, sequence):
        if "limits" in sequence:
            tool = self.tool(**_named(TENANTS[sequence["name"]][self.tenant]))
        else:
            tool = self.tool()
        steps = sequence["steps"]
        results = await self.results(tool, steps)
        self.assertEqual(len(results), len(steps))
        for step, result in zip(steps, results):
            about = f"{json.dumps(step)[:500]}: {result}"
            self.assertEqual(result.get("is_error", False), step["is_error"], about)
            if "content" in step:
                self.assertEqual(result["content"], expand(step["content"]), about)
            for part in step.get("contains", []):
                self.assertIn(part, result["content"], about)

    async def results(self, tool, steps):
        # The runner passes only the input on, so that blocks with the same id are for `handle`.
        if any("block" in step for step in steps):
            blocks = [step.get("block") or {"type": "tool_use", "name": "memory", "input": step["input"]} for step in steps]
            return [await do(tool.handle(expand(block))) for block in blocks]
        replies = [calls(expand(step["input"]), start=number) for number, step in enumerate(steps)]
        return await self.run_tool(tool, replies)


def _named(tenant):
    return {"store_id": tenant["memory_store_id"], "api_key": tenant["api_key"]}


class WithTheSyncTool(Conformance, WithSync, ToolTests):
    tenant = 0


class WithTheAsyncTool(Conformance, WithAsync, ToolTests):
    tenant = 1


if __name__ == "__main__":
    unittest.main()
