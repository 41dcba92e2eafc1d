"""A tool server that reads the files below the folder in its first argument."""
import json
import pathlib
import sys

TOOLS = [
    {
        "name": "find",
        "description": "List the files whose text contains a word.",
        "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
    {
        "name": "count",
        "description": "Count the lines of a file.",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
]


def run(tool, arguments):
    root = pathlib.Path(sys.argv[1])
    if tool == "count":
        return f"{len((root / arguments['path']).read_text().splitlines())} lines"
    files = sorted(path for path in root.rglob("*") if path.is_file())
    found = [path for path in files if arguments["word"] in path.read_text(errors="replace")]
    return "\n".join(str(path.relative_to(root)) for path in found)


def answer(request):
    method = request["method"]
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "files", "version": "1.0.0"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, failed = run(request["params"]["name"], request["params"].get("arguments", {})), False
        except Exception as error:
            text, failed = f"{type(error).__name__}: {error}", True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}), flush=True)
