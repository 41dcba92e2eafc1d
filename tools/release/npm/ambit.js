#!/usr/bin/env node
// Starts the ambit binary for this platform. The binary is in a package of its own, so npm downloads only one binary.
'use strict'
const { spawn } = require('node:child_process')

const name = `@ambit-run/ambit-${process.platform}-${process.arch}`
let binary
try {
  binary = require.resolve(`${name}/bin/ambit${process.platform === 'win32' ? '.exe' : ''}`)
} catch {
  console.error(`ambit: the package ${name} is not installed`)
  console.error('  hint: install @ambit-run/ambit again without --omit=optional; if npm finds no such package, ambit has no binary for this platform')
  process.exit(3)
}
const child = spawn(binary, process.argv.slice(2), { stdio: 'inherit' })
// A terminal sends Ctrl-C to ambit too, and a second signal would end ambit before its servers have stopped.
process.on('SIGINT', () => { if (!process.stdin.isTTY) child.kill('SIGINT') })
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
child.on('error', error => {
  console.error(`ambit: ${binary} cannot be started: ${error.message}`)
  process.exit(3)
})
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code)
  process.removeAllListeners(signal)
  process.kill(process.pid, signal)
})
