// A tool server with one tool, which echoes its arguments.
import { createInterface } from 'node:readline'
const send = message => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')
createInterface({ input: process.stdin }).on('line', line => {
  const { id, method, params } = JSON.parse(line)
  const serverInfo = { name: 'demo', version: '1' }
  if (method === 'initialize') send({ id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo } })
  else if (method === 'tools/list') send({ id, result: { tools: [{ name: 'echo', description: 'Says it back.', inputSchema: { type: 'object' } }] } })
  else if (method === 'tools/call') send({ id, result: { content: [{ type: 'text', text: 'you said ' + JSON.stringify(params.arguments) }] } })
  else if (id !== undefined) send({ id, error: { code: -32601, message: 'Method not found' } })
})
