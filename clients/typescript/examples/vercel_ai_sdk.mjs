// An agent on the Vercel AI SDK.

import { anthropic } from "@ai-sdk/anthropic";
import { KeepsakeMemoryTool } from "@keepsake/memory";
import { generateText, stepCountIs } from "ai";

const memory = new KeepsakeMemoryTool();
const { text } = await generateText({
  model: anthropic(process.env.MODEL ?? ""),
  prompt: "What do you remember about our release process?",
  tools: { memory: anthropic.tools.memory_20250818({ execute: memory.execute }) },
  stopWhen: stepCountIs(20),
});
console.log(text);
