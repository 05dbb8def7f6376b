"""The README's agents and the examples run as they are written."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from fakes import ViewingStub
from tools import API_KEY, BASE_URL, new_store

PACKAGE = pathlib.Path(__file__).parents[1]


class Documents(unittest.TestCase):
    def setUp(self):
        self.stub = ViewingStub("Tag, then build.")
        self.addCleanup(self.stub.server.server_close)
        self.addCleanup(self.stub.server.shutdown)

    def run_program(self, program, *arguments):
        """Runs a program in an empty folder; returns what it prints and what the tool answered."""
        variables = {
            "ANTHROPIC_BASE_URL": self.stub.url,
            "ANTHROPIC_API_KEY": "stub",
            "KEEPSAKE_URL": BASE_URL,
            "KEEPSAKE_API_KEY": API_KEY,
            "KEEPSAKE_STORE": new_store(),
        }
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", program, "claude-test", *arguments]
            ended = subprocess.run(
                command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
            )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        [result] = self.stub.tool_results()
        return ended.stdout, str(result["content"])

    def test_agents_of_the_readme_run(self):
        text = (PACKAGE / "README.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual([block.split("\n")[0] for block in blocks], ["# before.py", "# after.py"])
        for block in blocks:
            printed, seen = self.run_program(block)
            self.assertEqual(printed, "Tag, then build.\n")
            self.assertIn("files and directories up to 2 levels deep in /memories", seen)
            self.stub.requests.clear()
        lines = [set(block.splitlines()) for block in blocks]
        self.assertLessEqual(len(lines[0] - lines[1]), 3)

    def test_examples_run(self):
        examples = sorted((PACKAGE / "examples").glob("*.py"))
        self.assertEqual(len(examples), 3)
        for example in examples:
            with self.subTest(example.name):
                printed, seen = self.run_program(example.read_text(), "How do we release?")
                self.assertEqual(printed, "Tag, then build.\n")
                self.assertIn("/memories", seen)
                self.stub.requests.clear()


if __name__ == "__main__":
    unittest.main()
