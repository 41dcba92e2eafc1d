# A tool server whose one tool, work, uses files in the way that the first argument names.
import json, os, shutil, socket, sqlite3, subprocess, sys


def read(dir, port):
    os.chdir(dir + '/in')
    for name in sorted(os.listdir('.')):
        with open(name) as f:
            f.read()
    os.stat('../in/0.txt')
    os.path.exists(dir + '/none/deep')


def write(dir, port):
    out = dir + '/out'
    os.makedirs(out + '/a/b', exist_ok=True)
    for i in range(50):
        with open(f'{out}/{i}.tmp', 'w') as f:
            f.write('x')
        os.rename(f'{out}/{i}.tmp', f'{out}/{i}.done')
    os.truncate(out + '/0.done', 0)
    os.chmod(out + '/1.done', 0o600)
    os.symlink('1.done', out + '/link')
    os.readlink(out + '/link')
    shutil.rmtree(out)


def dirfd(dir, port):
    top = os.open(dir, os.O_RDONLY | os.O_DIRECTORY)
    sub = os.open('in', os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
    for i in range(100):
        os.close(os.open(f'{i}.txt', os.O_RDONLY, dir_fd=sub))
        os.stat(f'{i}.txt', dir_fd=sub)
    os.access('in/none.txt', os.R_OK, dir_fd=top)
    os.mkdir('made', dir_fd=top)
    os.close(os.open('made/old', os.O_CREAT | os.O_WRONLY, dir_fd=top))
    os.rename('made/old', 'made/new', src_dir_fd=top, dst_dir_fd=top)
    os.unlink('made/new', dir_fd=top)
    os.rmdir('made', dir_fd=top)


def run(dir, port):
    for i in range(5):
        text = subprocess.run(['/usr/bin/tr', 'a-z', 'A-Z'], stdin=open(f'{dir}/in/{i}.txt'), capture_output=True, check=True)
        assert text.stdout.startswith(b'TEXT'), text
    subprocess.run(['/usr/bin/wc', dir + '/in/7.txt'], check=True, capture_output=True)


def connect(dir, port):
    with open(dir + '/in/0.txt') as f, socket.create_connection(('127.0.0.1', port)) as s:
        s.sendall(f.read().encode())
        s.shutdown(socket.SHUT_WR)
        assert s.makefile().read() == 'text 0'


def database(dir, port):
    os.makedirs(dir + '/db', exist_ok=True)
    with sqlite3.connect(dir + '/db/data.db') as db:
        db.execute('create table if not exists t (a)')
        db.executemany('insert into t values (?)', [(i,) for i in range(100)])
    assert db.execute('select count(*) from t').fetchone()[0] >= 100


def answer(m):
    if m['method'] == 'initialize':
        return {'protocolVersion': m['params']['protocolVersion'], 'capabilities': {'tools': {}},
                'serverInfo': {'name': 'x', 'version': '1'}}
    if m['method'] == 'tools/list':
        return {'tools': [{'name': 'work', 'inputSchema': {'type': 'object'}}]}
    try:
        globals()[sys.argv[1]](**m['params']['arguments'])
        return {'content': [{'type': 'text', 'text': 'done'}]}
    except Exception as e:
        return {'content': [{'type': 'text', 'text': repr(e)}], 'isError': True}


for line in sys.stdin:
    m = json.loads(line)
    if 'id' not in m:
        continue
    if m['method'] not in ('initialize', 'tools/list', 'tools/call'):
        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'error': {'code': -32601, 'message': 'unknown'}}), flush=True)
        continue
    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': answer(m)}), flush=True)
