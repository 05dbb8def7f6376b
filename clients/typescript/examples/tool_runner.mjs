// An agent on the official SDK's tool runner.

import Anthropic from "@anthropic-ai/sdk";
import { KeepsakeMemoryTool, memoryTool } from "@keepsake/memory";

const memory = new KeepsakeMemoryTool();
const answer = await new Anthropic().beta.messages.toolRunner({
  model: process.env.MODEL ?? "",
  max_tokens: 2048,
  messages: [{ role: "user", content: "What do you remember about our release process?" }],
  tools: [memoryTool(memory)],
});
for (const block of answer.content) if (block.type === "text") console.log(block.text);
