"""Table Profile: profiles each column of a table of comma-separated values."""

import csv
import io
import os


def handler(arguments, tool):
    """Entry point of both tools; tool is the name of the tool that was called."""
    most = int(os.environ.get("TABLE_MAX_ROWS", "100000"))
    reader = csv.reader(io.StringIO(arguments["csv"]))
    header = next(reader, None)
    if header is None:
        raise ValueError("the table has no header line")
    if tool == "list_columns":
        return "\n".join(header)
    rows = []
    for row in reader:
        if len(rows) == most:
            raise ValueError(f"the table has more than {most} rows")
        rows.append(row)
    return {"rows": len(rows), "columns": [profile(name, column(rows, i)) for i, name in enumerate(header)]}


def column(rows, index):
    return [row[index].strip() if index < len(row) else "" for row in rows]


def profile(name, values):
    present = [v for v in values if v]
    result = {"name": name, "kind": "text", "missing": len(values) - len(present), "distinct": len(set(present))}
    numbers = as_numbers(present)
    if not present:
        result["kind"] = "empty"
    elif numbers is not None:
        result.update(kind="number", least=min(numbers), most=max(numbers))
    return result


def as_numbers(values):
    try:
        return [float(v) for v in values]
    except ValueError:
        return None
