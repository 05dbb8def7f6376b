import { randomUUID } from "node:crypto";

import { betaMemoryTool, type MemoryToolHandlers } from "@anthropic-ai/sdk/helpers/beta/memory";
import type { BetaRunnableTool } from "@anthropic-ai/sdk/lib/tools/BetaRunnableTool";
import { ToolError } from "@anthropic-ai/sdk/lib/tools/ToolError";
import type {
  BetaMemoryTool20250818,
  BetaMemoryTool20250818Command as Command,
  BetaMemoryTool20250818CreateCommand as CreateCommand,
  BetaMemoryTool20250818DeleteCommand as DeleteCommand,
  BetaMemoryTool20250818InsertCommand as InsertCommand,
  BetaMemoryTool20250818RenameCommand as RenameCommand,
  BetaMemoryTool20250818StrReplaceCommand as StrReplaceCommand,
  BetaMemoryTool20250818ViewCommand as ViewCommand,
} from "@anthropic-ai/sdk/resources/beta";

import { Connection, setting, type ConnectionOptions } from "./connection.js";

/** Whose memory it is: one store, or the stores of a session. */
export interface KeepsakeMemoryToolOptions extends ConnectionOptions {
  /** The memory store's id, `memstore_…`; `KEEPSAKE_STORE` by default. */
  memoryStoreId?: string | undefined;
  /** The session's id, `sesn_…`, instead of a store. */
  sessionId?: string | undefined;
}

/** A session as the server returns it when it is created. */
export interface Session {
  id: string;
  /** Null or missing unless the session was just created. */
  token?: string | null | undefined;
}

/** A model's `tool_use` block. */
export interface ToolUse {
  id: string;
  name: string;
  input: unknown;
}

/** A `tool_result` block for the next user message. */
export interface ToolResult {
  type: "tool_result";
  tool_use_id: string;
  content: string;
  is_error: boolean;
}

export interface HandleOptions {
  signal?: AbortSignal | null | undefined;
}

/** The second argument of a tool's `execute` in the Vercel AI SDK. */
export interface ExecuteOptions {
  toolCallId?: string | undefined;
  abortSignal?: AbortSignal | null | undefined;
}

/** The fields of an answer that are used. */
type Answer = Pick<ToolResult, "content" | "is_error">;

/**
 * The memory tool of an agent, carried out by a Keepsake server.
 *
 * Each of the six commands returns the text for the model. An error that the
 * model can correct is a `ToolError`, any other one a `KeepsakeError`. A request
 * whose outcome is unknown is repeated, and its change is made once.
 */
export class KeepsakeMemoryTool implements MemoryToolHandlers {
  readonly #connection: Connection;
  readonly #path: string;

  constructor(options: KeepsakeMemoryToolOptions = {}) {
    this.#connection = new Connection(options);
    this.#path = `/v1/${mount(options)}/tool_calls`;
  }

  /** The stores of a session, with its token; `options` are the others of the constructor. */
  static fromSession(
    session: Session,
    options: Omit<KeepsakeMemoryToolOptions, "apiKey" | "memoryStoreId" | "sessionId"> = {},
  ): KeepsakeMemoryTool {
    if (!session.token) {
      throw new TypeError(
        "session.token is missing: it is returned once, when the session is created. " +
          `Request a new one with POST /v1/sessions/${session.id}/token`,
      );
    }
    return new KeepsakeMemoryTool({ ...options, apiKey: session.token, sessionId: session.id });
  }

  view(command: ViewCommand): Promise<string> {
    return this.execute(command);
  }

  create(command: CreateCommand): Promise<string> {
    return this.execute(command);
  }

  str_replace(command: StrReplaceCommand): Promise<string> {
    return this.execute(command);
  }

  insert(command: InsertCommand): Promise<string> {
    return this.execute(command);
  }

  delete(command: DeleteCommand): Promise<string> {
    return this.execute(command);
  }

  rename(command: RenameCommand): Promise<string> {
    return this.execute(command);
  }

  /**
   * Carries out a command and returns the text for the model; the `execute` of the
   * Vercel AI SDK's `memory_20250818`.
   *
   * The id of the tool call makes a change idempotent for 24 hours, also if another
   * process sends it again. Without the id, each call has an idempotency key of its
   * own, which only its retries share.
   */
  readonly execute = async (command: Command, options: ExecuteOptions = {}): Promise<string> => {
    const { toolCallId, abortSignal } = options;
    const block = { type: "tool_use", name: "memory", input: command };
    const result = toolCallId
      ? await this.#send({ ...block, id: toolCallId }, {}, abortSignal)
      : await this.#send(block, { "idempotency-key": randomUUID() }, abortSignal);
    if (result.is_error) throw errorForModel(result.content);
    return result.content;
  };

  /**
   * Answers a model's block with the block to append, for a loop written by hand.
   *
   * Blocks of the memory tool and of the agent tools are carried out. The same block
   * can be sent again for 24 hours: its change is made once.
   */
  readonly handle = async (block: ToolUse, options: HandleOptions = {}): Promise<ToolResult> => {
    const { id, name, input } = block;
    if (typeof id !== "string" || id === "") throw new TypeError("block.id must be the id of a tool_use block");
    const { content, is_error } = await this.#send({ type: "tool_use", id, name, input }, {}, options.signal);
    return { type: "tool_result", tool_use_id: id, content, is_error };
  };

  #send(body: unknown, headers: Record<string, string>, signal: AbortSignal | null | undefined): Promise<Answer> {
    return this.#connection.post(this.#path, body, headers, isAnswer, signal);
  }
}

/**
 * The SDK's `betaMemoryTool` with the ids of the model's blocks: a change is made
 * once even if a restarted process runs the block again.
 *
 * @param extraProps additional properties of the tool's definition, such as `cache_control`
 */
export function memoryTool(
  memory: KeepsakeMemoryTool,
  extraProps?: Omit<BetaMemoryTool20250818, "type" | "name">,
): BetaRunnableTool<Command> {
  return {
    ...betaMemoryTool(memory, extraProps),
    run: (command, context) =>
      memory.execute(command, { toolCallId: context?.toolUse.id, abortSignal: context?.signal }),
  };
}

/**
 * An error that the model can correct. Its text is the server's, also as a string: version 7 of
 * the Vercel AI SDK shows the model `String(error)`, which begins with the error's name otherwise.
 */
function errorForModel(content: string): ToolError {
  return Object.defineProperty(new ToolError(content), "toString", { value: () => content });
}

/** The part of the path that names a store or a session. */
function mount({ memoryStoreId, sessionId }: KeepsakeMemoryToolOptions): string {
  if (sessionId === undefined) {
    const id = setting(memoryStoreId, "memoryStoreId", "KEEPSAKE_STORE");
    if (/^memstore_\w+$/.test(id)) return `memory_stores/${id}`;
    throw new TypeError(`memoryStoreId (or KEEPSAKE_STORE) must be a store's id, memstore_…, not "${id}"`);
  }
  if (memoryStoreId !== undefined) throw new TypeError("memoryStoreId and sessionId exclude each other");
  if (/^sesn_\w+$/.test(sessionId)) return `sessions/${sessionId}`;
  throw new TypeError(`sessionId must be a session's id, sesn_…, not "${sessionId}"`);
}

function isAnswer(answer: unknown): answer is Answer {
  if (typeof answer !== "object" || answer === null) return false;
  const { type, content, is_error } = answer as Partial<ToolResult>;
  return type === "tool_result" && typeof content === "string" && typeof is_error === "boolean";
}
