"""An agent with its own loop, on a session: python loop.py MODEL QUESTION

The session attaches the store of KEEPSAKE_STORE. The agent has only the session's
token, which can read and write this store and nothing else.
"""

import os
import sys

from anthropic import Anthropic
from anthropic.types.beta import BetaMessageParam
from keepsake_memory import KeepsakeMemoryTool


def main(model: str, question: str) -> None:
    keepsake = Anthropic(base_url=os.environ["KEEPSAKE_URL"], api_key=os.environ["KEEPSAKE_API_KEY"])
    session = keepsake.beta.sessions.create(
        agent="assistant",
        environment_id="laptop",
        resources=[{"type": "memory_store", "memory_store_id": os.environ["KEEPSAKE_STORE"]}],
    )
    messages: list[BetaMessageParam] = [{"role": "user", "content": question}]
    claude = Anthropic()
    with KeepsakeMemoryTool.from_session(session) as memory:
        while True:
            reply = claude.beta.messages.create(
                model=model, max_tokens=2048, messages=messages, tools=[memory.to_dict()]
            )
            messages.append({"role": "assistant", "content": reply.content})
            results = [memory.handle(block) for block in reply.content if block.type == "tool_use"]
            if not results:
                break
            messages.append({"role": "user", "content": results})
    for block in reply.content:
        if block.type == "text":
            print(block.text)


main(*sys.argv[1:])
