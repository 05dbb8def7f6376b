// An agent with several stores: each is a directory, and the agent has a token for these stores only.

import Anthropic from "@anthropic-ai/sdk";
import { KeepsakeMemoryTool, memoryTool } from "@keepsake/memory";

const { KEEPSAKE_URL, KEEPSAKE_API_KEY, KEEPSAKE_STORE } = process.env;
const keepsake = new Anthropic({ baseURL: KEEPSAKE_URL ?? "", apiKey: KEEPSAKE_API_KEY ?? "" });
const session = await keepsake.beta.sessions.create({
  agent: "agent_1",
  environment_id: "env_1",
  resources: [{ type: "memory_store", memory_store_id: KEEPSAKE_STORE ?? "" }],
});

const memory = KeepsakeMemoryTool.fromSession(session);
const answer = await new Anthropic().beta.messages.toolRunner({
  model: process.env.MODEL ?? "",
  max_tokens: 2048,
  system: /** @type {any} */ (session).system_prompt,
  messages: [{ role: "user", content: "What do you remember about our release process?" }],
  tools: [memoryTool(memory)],
});
for (const block of answer.content) if (block.type === "text") console.log(block.text);
