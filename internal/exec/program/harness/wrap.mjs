// Calls the function that a bundle exports with one input, and writes its answer as one line.
import { readFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";

const pause = new Int32Array(new SharedArrayBuffer(4));
const task = JSON.parse(readFileSync(0, "utf8"));

// Output of the code goes to the log.
process.stdout.write = process.stderr.write.bind(process.stderr);

function end(outcome) {
  let line = Buffer.from(`\n${task.mark}${JSON.stringify(outcome)}\n`);
  while (line.length > 0) {
    try {
      line = line.subarray(writeSync(1, line));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(pause, 0, 0, 1); // the pipe is full
    }
  }
  process.exit(0);
}

const reason = (error) => (error instanceof Error ? error.message : typeof error === "string" ? error : inspect(error));

let call;
try {
  const module = await import(pathToFileURL(task.entry).href);
  call = module[task.export] ?? module.default?.[task.export];
} catch (error) {
  console.error(error);
  end({ broken: `loading failed: ${reason(error)}` });
}
if (typeof call !== "function") end({ broken: `the entry exports no function named ${task.export}` });
try {
  const value = await call(task.input, task.tool);
  end({ value: value === undefined ? null : value });
} catch (error) {
  console.error(error);
  end({ thrown: reason(error) });
}
