// A Messages API with a scripted model.

import assert from "node:assert/strict";
import { createServer } from "node:http";

/** The last reply of a model. */
export const DONE = [{ type: "text", text: "Done." }];

let calls = 0;

/**
 * A reply that calls a tool with each input.
 * @param {object[]} inputs
 */
export const callsOf = (inputs, name = "memory") =>
  inputs.map((input) => ({ type: "tool_use", id: `toolu_${String(++calls).padStart(24, "0")}`, name, input }));

/**
 * Answers each request with the next scripted reply.
 * @typedef {{type: string, tool_use_id: string, content: any, is_error?: boolean}} Result
 * @typedef {{type: string, [field: string]: unknown}[]} Reply
 */
export class MessagesStub {
  /** @type {any[]} */
  requests = [];
  /** @type {Reply[]} */
  #replies;
  #server = createServer((incoming, outgoing) => {
    this.#answer(incoming, outgoing).catch((error) => outgoing.destroy(error));
  });

  /** @param {Reply[]} replies */
  constructor(replies) {
    this.#replies = replies;
  }

  /**
   * A stub that ends with the test.
   * @param {import("node:test").TestContext} test
   * @param {Reply[]} replies
   */
  static async open(test, replies) {
    const stub = new MessagesStub(replies);
    await new Promise((listening) => stub.#server.listen(0, "127.0.0.1", () => listening(null)));
    test.after(() => {
      stub.#server.close();
      stub.#server.closeAllConnections();
    });
    return stub;
  }

  get url() {
    const { port } = /** @type {import("node:net").AddressInfo} */ (this.#server.address());
    return `http://127.0.0.1:${port}`;
  }

  /**
   * The results of all tool calls, in order; checks that the script has ended.
   *
   * A request has the whole conversation, or only its new messages: both end with
   * the results of the last reply.
   * @returns {Result[]}
   */
  results() {
    assert.equal(this.requests.length, this.#replies.length);
    return this.requests.flatMap(({ messages }) => {
      const { content } = messages.at(-1);
      return typeof content === "string" ? [] : content.filter((/** @type {any} */ each) => each.type === "tool_result");
    });
  }

  /**
   * @param {import("node:http").IncomingMessage} incoming
   * @param {import("node:http").ServerResponse} outgoing
   */
  async #answer(incoming, outgoing) {
    const parts = [];
    for await (const part of incoming) parts.push(part);
    assert.match(incoming.url ?? "", /\/messages(\?|$)/);
    this.requests.push(JSON.parse(Buffer.concat(parts).toString()));
    const content = this.#replies[this.requests.length - 1];
    const callsTools = content?.some((block) => block.type === "tool_use");
    outgoing.writeHead(content ? 200 : 400, { "content-type": "application/json" });
    outgoing.end(
      JSON.stringify({
        id: `msg_${this.requests.length}`,
        type: "message",
        role: "assistant",
        model: "stub",
        content,
        stop_reason: callsTools ? "tool_use" : "end_turn",
        stop_sequence: null,
        usage: { input_tokens: 1, output_tokens: 1 },
      }),
    );
  }
}
