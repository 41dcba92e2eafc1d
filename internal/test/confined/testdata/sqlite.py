"""A tool server that queries the SQLite database in its first argument."""
import json
import sqlite3
import sys

TOOLS = [
    {
        "name": "query",
        "description": "Run one SELECT statement.",
        "inputSchema": {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
    },
    {
        "name": "insert",
        "description": "Run one INSERT statement, and count the rows of the table.",
        "inputSchema": {
            "type": "object",
            "properties": {"table": {"type": "string"}, "values": {"type": "array"}},
            "required": ["table", "values"],
        },
    },
]


def run(tool, arguments):
    with sqlite3.connect(sys.argv[1]) as db:
        if tool == "query":
            return json.dumps(db.execute(arguments["sql"]).fetchall())
        marks = ",".join("?" for _ in arguments["values"])
        table = '"' + arguments["table"].replace('"', '""') + '"'
        db.execute(f"INSERT INTO {table} VALUES ({marks})", arguments["values"])
        return f"{db.execute(f'SELECT count(*) FROM {table}').fetchone()[0]} rows"


def answer(request):
    method = request["method"]
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "sqlite", "version": "1.0.0"}}
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
