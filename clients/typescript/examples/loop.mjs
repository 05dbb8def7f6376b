// An agent with a loop written by hand.

import Anthropic from "@anthropic-ai/sdk";
import { KeepsakeMemoryTool } from "@keepsake/memory";

const memory = new KeepsakeMemoryTool();
const client = new Anthropic();
/** @type {Anthropic.Beta.BetaMessageParam[]} */
const messages = [
  { role: "user", content: "What do you remember about our release process?" },
];
while (true) {
  const reply = await client.beta.messages.create({
    model: process.env.MODEL ?? "",
    max_tokens: 2048,
    messages,
    betas: ["context-management-2025-06-27"],
    tools: [{ type: "memory_20250818", name: "memory" }],
  });
  messages.push({ role: "assistant", content: reply.content });
  const calls = reply.content.filter((block) => block.type === "tool_use");
  if (calls.length === 0) {
    for (const block of reply.content) if (block.type === "text") console.log(block.text);
    break;
  }
  const results = [];
  for (const block of calls) results.push(await memory.handle(block));
  messages.push({ role: "user", content: results });
}
