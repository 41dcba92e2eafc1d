// An MCP server on standard input and output, with one JSON-RPC message per line.
import { createInterface } from "node:readline";
import { UNITS, convert } from "./units.mjs";

const object = (properties, required = []) => ({ type: "object", properties, required, additionalProperties: false });
const text = { type: "string" };

const TOOLS = {
  convert_unit: {
    description: "Convert a value from one unit to another of the same kind.",
    inputSchema: object({ value: { type: "number" }, from: text, to: text }, ["value", "from", "to"]),
    call: ({ value, from, to }) => `${value} ${from} = ${convert(value, from, to)} ${to}`,
  },
  list_units: {
    description: "List the units that can be converted, by kind.",
    inputSchema: object({}),
    call: () => Object.entries(UNITS).map(([kind, units]) => `${kind}: ${Object.keys(units).join(", ")}`).join("\n"),
  },
};

const METHODS = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "unit-converter", version: "1.0.0" },
  }),
  ping: () => ({}),
  "tools/list": () => ({
    tools: Object.entries(TOOLS).map(([name, { description, inputSchema }]) => ({ name, description, inputSchema })),
  }),
  "tools/call": ({ name, arguments: input = {} }) => {
    const answer = (content, isError) => ({ content: [{ type: "text", text: content }], isError });
    try {
      return answer(TOOLS[name].call(input), false);
    } catch (error) {
      return answer(error.message, true);
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params = {} } = JSON.parse(line);
  if (id === undefined) continue; // a notification
  const reply = Object.hasOwn(METHODS, method)
    ? { result: METHODS[method](params) }
    : { error: { code: -32601, message: `there is no method ${method}` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...reply })}\n`);
}
