/**
 * The memory tool of an agent (`memory_20250818`), with its files on a Keepsake
 * server.
 */

export { KeepsakeMemoryTool, memoryTool } from "./tool.js";
export type { ExecuteOptions, HandleOptions, KeepsakeMemoryToolOptions, Session, ToolResult, ToolUse } from "./tool.js";
export type { ConnectionOptions } from "./connection.js";
export { KeepsakeAPIError, KeepsakeConnectionError, KeepsakeError } from "./errors.js";
export { ToolError } from "@anthropic-ai/sdk/lib/tools/ToolError";
