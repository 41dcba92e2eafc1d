// Validates every file of a folder with ajv's compiled schemas and prints one
// line of JSON: how many, how long, how many were valid.
//
//   node ajv.mjs FOLDER SCHEMAS ROUNDS
//
// Reading the files is not timed; parsing is, since a validator of files has
// to do it. TOML is parsed by smol-toml.
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
  text: readFileSync(join(folder, name), "utf8"),
  dialect: name.slice(0, name.indexOf("-")),
  toml: name.endsWith(".toml"),
}));

function round() {
  let valid = 0;
  for (const f of files) {
    const doc = f.toml ? parseTOML(f.text) : JSON.parse(f.text);
    if (validators[f.dialect](doc)) valid++;
  }
  return valid;
}

round(); // let the compiler warm up
const times = [];
let valid = 0;
for (let i = 0; i < Number(rounds); i++) {
  const start = process.hrtime.bigint();
  valid = round();
  times.push(Number(process.hrtime.bigint() - start));
}
console.log(JSON.stringify({ files: files.length, valid, nanoseconds: times }));
