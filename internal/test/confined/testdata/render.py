"""A tool server that renders text. It uses neither files nor the network."""
import difflib
import json
import string
import sys
import textwrap

TOOLS = [
    {
        "name": "render",
        "description": "Replace the $names in a template, and wrap the text at a width.",
        "inputSchema": {
            "type": "object",
            "properties": {"template": {"type": "string"}, "values": {"type": "object"}, "width": {"type": "integer"}},
            "required": ["template", "values"],
        },
    },
    {
        "name": "compare",
        "description": "Show the difference between two texts.",
        "inputSchema": {
            "type": "object",
            "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
            "required": ["old", "new"],
        },
    },
]


def run(tool, arguments):
    if tool == "compare":
        return "\n".join(difflib.unified_diff(arguments["old"].splitlines(), arguments["new"].splitlines(), lineterm=""))
    text = string.Template(arguments["template"]).substitute(arguments["values"])
    return textwrap.fill(text, arguments.get("width", 72))


def answer(request):
    method = request["method"]
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "render", "version": "1.0.0"}}
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
