# Calls the function that a bundle exports with one input, and writes its answer as one line.
import asyncio
import importlib.util
import inspect
import json
import os
import sys
import traceback

task = json.loads(sys.stdin.buffer.read())
answers = os.dup(1)
os.dup2(2, 1)  # output of the code goes to the log


def end(outcome):
    line = ("\n" + task["mark"] + json.dumps(outcome, allow_nan=False) + "\n").encode()
    while line:
        line = line[os.write(answers, line):]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def takes_two(function):
    try:
        inspect.signature(function).bind(None, None)
        return True
    except TypeError:
        return False
    except ValueError:  # the function has no signature
        return True


async def finished(awaitable):
    return await awaitable


try:
    sys.path[:0] = [os.path.dirname(task["entry"]), "/bundle"]
    spec = importlib.util.spec_from_file_location("bundle_entry", task["entry"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["bundle_entry"] = module
    spec.loader.exec_module(module)
    call = getattr(module, task["export"], None)
except BaseException as error:
    traceback.print_exc()
    end({"broken": f"loading failed: {error}"})
if not callable(call):
    end({"broken": "the entry exports no function named " + task["export"]})
try:
    value = call(task["input"], task["tool"]) if takes_two(call) else call(task["input"])
    if inspect.isawaitable(value):
        value = asyncio.run(finished(value))
    end({"value": value})
except BaseException as error:
    traceback.print_exc()
    end({"thrown": str(error) or type(error).__name__})
