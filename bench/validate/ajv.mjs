// Validates every file of a folder with ajv's compiled schemas and prints one
// line of JSON: how many, how long, how many were valid.
//
//   node ajv.mjs FOLDER SCHEMAS ROUNDS
//
// Two things are timed: from the file to the verdict, as a validator works,
// and from bytes in memory to the verdict. TOML is parsed by smol-toml.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import Ajv2020 from "ajv/dist/2020.js";
import { parse as parseTOML } from "smol-toml";

const [folder, schemas, rounds] = process.argv.slice(2);
const ajv = new Ajv2020({ strict: false, allErrors: true });
const validators = {};
for (const d of ["matrix", "gpars", "covenant", "findagent"]) {
  validators[d] = ajv.compile(JSON.parse(readFileSync(join(schemas, d + ".json"), "utf8")));
}
const files = readdirSync(folder).sort().map((name) => ({
  path: join(folder, name),
  bytes: readFileSync(join(folder, name)),
  dialect: name.slice(0, name.indexOf("-")),
  toml: name.endsWith(".toml"),
}));

function round(fromDisk) {
  let valid = 0;
  for (const f of files) {
    const text = fromDisk ? readFileSync(f.path, "utf8") : f.bytes.toString("utf8");
    const doc = f.toml ? parseTOML(text) : JSON.parse(text);
    if (validators[f.dialect](doc)) valid++;
  }
  return valid;
}

// The first rounds let the compiler warm up.
round(true);
round(false);
const disk = [];
const memory = [];
let valid = 0;
for (let i = 0; i < Number(rounds); i++) {
  const start = process.hrtime.bigint();
  valid = round(true);
  const middle = process.hrtime.bigint();
  round(false);
  disk.push(Number(middle - start));
  memory.push(Number(process.hrtime.bigint() - middle));
}
console.log(JSON.stringify({ files: files.length, valid, disk, memory }));
