"""A tool server that requests a page. Its first argument is the base URL."""
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

TOOLS = [
    {
        "name": "get",
        "description": "Request a page. A URL without a host belongs to the base URL.",
        "inputSchema": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    },
]


def run(tool, arguments):
    url = urllib.parse.urljoin(sys.argv[1], arguments["url"])
    try:
        with urllib.request.urlopen(url, timeout=10) as page:
            return page.read(10_000).decode(errors="replace")
    except urllib.error.URLError as error:
        raise RuntimeError(f"cannot request {urllib.parse.urlsplit(url).hostname}: {error.reason}") from error


def answer(request):
    method = request["method"]
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "request", "version": "1.0.0"}}
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
