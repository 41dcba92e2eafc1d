// A tool server whose one tool, work, uses files in the way that the first argument names.
import {createInterface} from 'node:readline'
import {execFileSync} from 'node:child_process'
import * as fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'

const ways = {
	async read({dir}) {
		if (!fs.existsSync(dir + '/in')) throw new Error('there is no folder in')
		const names = await fs.promises.readdir(dir + '/in')
		await Promise.all(names.map(n => fs.promises.readFile(path.join(dir, 'in', n), 'utf8')))
		for (const n of names) fs.statSync(path.join(dir, 'in', n))
		fs.realpathSync(dir + '/in/0.txt')
		fs.existsSync(dir + '/in/.settings')
	},
	async change({dir, port}) {
		const out = dir + '/out'
		fs.mkdirSync(out, {recursive: true})
		for (let i = 0; i < 30; i++) {
			fs.writeFileSync(`${out}/${i}.tmp`, 'x')
			fs.renameSync(`${out}/${i}.tmp`, `${out}/${i}.done`)
			fs.appendFileSync(`${out}/${i}.done`, 'y')
		}
		fs.copyFileSync(dir + '/in/1.txt', out + '/copy')
		fs.rmSync(out, {recursive: true})
		execFileSync('/usr/bin/wc', [dir + '/in/2.txt'])
		await new Promise((yes, no) => net.connect(port, '127.0.0.1').on('error', no).on('close', yes).resume().end('x'))
	},
}

async function answer(m) {
	switch (m.method) {
	case 'initialize':
		return {protocolVersion: m.params.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: 'x', version: '1'}}
	case 'tools/list':
		return {tools: [{name: 'work', inputSchema: {type: 'object'}}]}
	}
	try {
		await ways[process.argv[2]](m.params.arguments)
		return {content: [{type: 'text', text: 'done'}]}
	} catch (e) {
		return {content: [{type: 'text', text: String(e)}], isError: true}
	}
}

for await (const line of createInterface({input: process.stdin})) {
	const m = JSON.parse(line)
	if (m.id === undefined) continue
	const known = ['initialize', 'tools/list', 'tools/call'].includes(m.method)
	const rest = known ? {result: await answer(m)} : {error: {code: -32601, message: 'unknown'}}
	console.log(JSON.stringify({jsonrpc: '2.0', id: m.id, ...rest}))
}
