"""The memory tool of the Anthropic SDK, with memories kept by Keepsake.

    from keepsake_memory import KeepsakeMemoryTool

    with KeepsakeMemoryTool() as memory:
        runner = client.beta.messages.tool_runner(..., tools=[memory])

The server, the API key and the memory store are arguments, or the variables
KEEPSAKE_URL, KEEPSAKE_API_KEY and KEEPSAKE_STORE.
"""

from ._errors import KeepsakeError
from ._tool import AsyncKeepsakeMemoryTool, KeepsakeMemoryTool

__all__ = ["AsyncKeepsakeMemoryTool", "KeepsakeError", "KeepsakeMemoryTool"]
