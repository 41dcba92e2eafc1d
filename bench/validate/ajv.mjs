// Validates every file of a folder with ajv's compiled schemas, once for each
// line of input, and prints the times and the number of valid files as a line of JSON.
//
//   node ajv.mjs FOLDER SCHEMAS
//
// It measures the time from the file to the verdict and the time from bytes in
// memory to the verdict. smol-toml parses TOML.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import Ajv2020 from "ajv/dist/2020.js";
import { parse as parseTOML } from "smol-toml";

const [folder, schemas] = process.argv.slice(2);
const ajv = new Ajv2020({ strict: false, allErrors: true });
const names = readdirSync(folder).sort();
const groups = ["matrix", "gpars", "covenant", "findagent"].map((dialect) => ({
  validate: ajv.compile(JSON.parse(readFileSync(join(schemas, dialect + ".json"), "utf8"))),
  files: names
    .filter((name) => name.startsWith(dialect))
    .map((name) => ({
      path: join(folder, name),
      bytes: readFileSync(join(folder, name)),
      toml: name.endsWith(".toml"),
    })),
}));

function measure(fromDisk) {
  let valid = 0;
  const costs = groups.map(({ validate, files }) => {
    const cpu = process.cpuUsage();
    const wall = process.hrtime.bigint();
    for (const f of files) {
      const text = fromDisk ? readFileSync(f.path, "utf8") : f.bytes.toString("utf8");
      const doc = f.toml ? parseTOML(text) : JSON.parse(text);
      if (validate(doc)) valid++;
    }
    const took = Number(process.hrtime.bigint() - wall);
    const { user, system } = process.cpuUsage(cpu);
    return { files: files.length, wall: took, cpu: (user + system) * 1000 };
  });
  return { costs, valid };
}

for await (const _ of createInterface({ input: process.stdin })) {
  const disk = measure(true);
  const memory = measure(false);
  console.log(JSON.stringify({ valid: disk.valid, disk: disk.costs, memory: memory.costs }));
}
