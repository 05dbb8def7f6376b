"""An agent with the SDK's tool runner: python tool_runner.py MODEL QUESTION"""

import sys

from anthropic import Anthropic
from keepsake_memory import KeepsakeMemoryTool


def main(model: str, question: str) -> None:
    with KeepsakeMemoryTool() as memory:
        runner = Anthropic().beta.messages.tool_runner(
            model=model,
            max_tokens=2048,
            tools=[memory],
            messages=[{"role": "user", "content": question}],
        )
        for block in runner.until_done().content:
            if block.type == "text":
                print(block.text)


main(*sys.argv[1:])
