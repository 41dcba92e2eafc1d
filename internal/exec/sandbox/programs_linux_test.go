package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// confined runs a program in the confined tier. The program may start only the given programs.
func confined(t *testing.T, s Spec) (stdout string, refused []string) {
	t.Helper()
	var stderr strings.Builder
	s.Tier, s.NoExec, s.PIDs = Confined, true, 64
	var mu sync.Mutex
	s.OnExec = func(path string) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, path)
	}
	s.OnStderr = func(line string) { stderr.WriteString(line + "\n") }
	out, err := Run(t.Context(), s)
	if err != nil || out.ExitCode != 0 {
		t.Fatalf("%v, exit code %d: %s", err, out.ExitCode, stderr.String())
	}
	return strings.TrimSpace(string(out.Stdout)), refused
}

func needConfined(t *testing.T) {
	t.Helper()
	if pooled || strong {
		t.Skip("the confined tier has no pool and no gVisor")
	}
	if err := Check(t.Context(), Confined, ""); err != nil {
		t.Fatal(err)
	}
}

// otherPrograms is a Python program. It prints every native program in the sandbox except its own, and the programs
// that it can start itself.
const otherPrograms = `
import os, sys
own = os.path.realpath(sys.executable)
for start in ('/usr', '/etc', '/dev', '/tmp', '/scratch', '/opt', '/home', '/root', '/run', '/var'): # '/' itself cannot be listed
    for top, dirs, files in os.walk(start):
        for f in files:
            p = os.path.join(top, f)
            try:
                if os.path.islink(p) or '.so' in f or not os.access(p, os.X_OK) or p == own: continue
                if open(p, 'rb').read(4) == b'\x7fELF': print(p)
            except OSError: pass
`

// TestNoOtherProgram checks that without the right to execute, a sandbox contains only the first program. The test
// covers programs of all kinds: an interpreter by its link, by its script, and outside the system's folders, and a
// static program.
func TestNoOtherProgram(t *testing.T) {
	needConfined(t)
	if got, _ := confined(t, Spec{Argv: []string{"python3", "-I", "-c", otherPrograms}}); got != "" {
		t.Errorf("the sandbox contains other programs:\n%s", got)
	}
	if out, err := Run(t.Context(), Spec{Tier: Confined, Argv: []string{"python3", "-I", "-c", otherPrograms}}); err != nil || len(out.Stdout) == 0 {
		t.Errorf("with the right to execute, the program finds no other program (error %v)", err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	script := write("script", "#!/usr/bin/env -S python3 -I\nprint('script')\n")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(node)
	if err != nil {
		t.Fatal(err)
	}
	runtime := write("runtime/bin/node", string(text))
	write("runtime/bin/npm", "#!/bin/sh\necho npm\n")
	if err := os.Symlink("runtime", filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	mounts := []Mount{{Source: dir, To: dir}}
	for _, tt := range []struct {
		name string
		s    Spec
		want string
	}{
		{"python", Spec{Argv: []string{"python3", "-c", "import ssl, sqlite3, ctypes, json; print('python')"}}, "python"},
		{"python by its path", Spec{Argv: []string{"/bin/python3", "-c", "print('python')"}}, "python"},
		{"node", Spec{Argv: []string{"node", "-e", "console.log(require('os').userInfo().username)"}}, "agent"},
		{"script", Spec{Argv: []string{script}, Mounts: mounts}, "script"},
		{"a runtime in another folder", Spec{Argv: []string{runtime, "-p", "require('fs').readdirSync('" + dir + "/runtime/bin').join()"}, Mounts: mounts}, "node"},
		{"a runtime behind a link", Spec{Argv: []string{dir + "/current/bin/node", "-p", "require('fs').readdirSync('" + dir + "/runtime/bin').join()"}, Mounts: mounts}, "node"},
		{"static program", func() Spec { s := native("network"); s.Env = append(s.Env, "ADDRESSES="); return s }(), ""},
		{"native library", Spec{Argv: []string{"python3", "-c", "import ctypes; print(ctypes.CDLL('" + lib(t, dir) + "').zlibVersion is not None)"}, Mounts: mounts}, "True"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _ := confined(t, tt.s); got != tt.want {
				t.Errorf("got stdout %q, want %q", got, tt.want)
			}
		})
	}
}

// lib copies a library of this machine to a folder.
func lib(t *testing.T, dir string) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib*/*/libz.so.1")
	more, _ := filepath.Glob("/usr/lib*/libz.so.1")
	if found = append(found, more...); len(found) == 0 {
		t.Fatal("this machine has no libz")
	}
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "lib.so"), text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "lib.so")
}

// TestWrittenCodeIsNotExecuted checks that files that the program writes cannot be mapped as code. The same file in a
// read-only mount can be mapped.
func TestWrittenCodeIsNotExecuted(t *testing.T) {
	needConfined(t)
	dir, home := t.TempDir(), t.TempDir()
	library := lib(t, dir)
	got, _ := confined(t, Spec{
		Argv: []string{"python3", "-c", `
import ctypes, mmap, os, shutil, sys
ctypes.CDLL(sys.argv[1])
for d in ('/tmp', '/dev/shm', os.environ['HOME'], '/scratch', '/declared with space'):
    shutil.copy(sys.argv[1], d + '/x.so')
    try: ctypes.CDLL(d + '/x.so'); print('loaded', d)
    except OSError: pass
    with open(d + '/x.so') as f:
        m = mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)
        a = ctypes.c_char
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        p = libc.mmap(None, ctypes.c_size_t(4096), 1, 2, f.fileno(), ctypes.c_long(0))
        if libc.mprotect(ctypes.c_void_p(p), ctypes.c_size_t(4096), 5) == 0: print('mapped', d)
for flags in (0, 1, 0x10):
    try: os.memfd_create('x', flags); print('memory file', flags)
    except OSError: pass
print(os.memfd_create('x', 8) > 0)
`, library},
		Mounts: []Mount{
			{Source: dir, To: dir},
			{Source: home, To: Home, Write: true, Give: true},
			{Source: t.TempDir(), To: "/declared with space", Write: true, AsOwner: true},
		},
	})
	if got != "True" {
		t.Errorf("the program executed what it wrote: %s", got)
	}
}

// TestListedPrograms checks that a program can start only the programs in its list and their helpers, whatever path it
// uses.
func TestListedPrograms(t *testing.T) {
	needConfined(t)
	code := `
import subprocess, sys
for argv in (['git', '--version'], ['/bin/git', 'version'], ['sh', '-c', 'echo shell'], ['/usr/bin/env', 'true'], ['/lib64/ld-linux-x86-64.so.2', '/usr/bin/git', 'version'], [sys.executable, '-c', 'print(1)']):
    try: print(argv[0], subprocess.run(argv, stdout=subprocess.PIPE, text=True).stdout.split()[0])
    except OSError as e: print(argv[0], type(e).__name__)
`
	got, refused := confined(t, Spec{Argv: []string{"python3", "-c", code}, Programs: []string{"git"}})
	want := "git git\n/bin/git git\nsh PermissionError\n/usr/bin/env PermissionError\n/lib64/ld-linux-x86-64.so.2 PermissionError\n/usr/bin/python3 PermissionError"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !slices.Contains(refused, "/usr/bin/env") || slices.Contains(refused, "/usr/bin/git") {
		t.Errorf("the refused programs are %q, want env and not git", refused)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, _ = confined(t, Spec{
		Argv: []string{"node", "-p", "require('child_process').execFileSync('" + dir + "/tool') + ''"}, Programs: []string{dir, "sh"},
		Mounts: []Mount{{Source: dir, To: dir}},
	})
	if got != "tool" {
		t.Errorf("a program in a listed folder printed %q", got)
	}
	own := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "tool"), filepath.Join(own, "tool")); err != nil {
		t.Fatal(err)
	}
	got, _ = confined(t, Spec{
		Argv: []string{"node", "-p", "require('child_process').execFileSync('" + Home + "/tool') + ''"}, Programs: []string{dir + "/tool", "sh"},
		Mounts: []Mount{{Source: dir, To: dir}, {Source: own, To: Home, Write: true, Give: true}}, OwnerHome: dir,
	})
	if got != "tool" {
		t.Errorf("a program in the owner's home printed %q through a link in the private home", got)
	}
}

// TestSwappedPath changes a path while ambit judges it. The program must not be able to start a program that is not in
// its list, even if that program is visible and executable.
func TestSwappedPath(t *testing.T) {
	needConfined(t)
	dir := t.TempDir()
	text, err := os.ReadFile("/usr/bin/true")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "true"), text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, _ := confined(t, Spec{
		Argv: []string{"python3", "-c", `
import ctypes, mmap, os, sys, threading
path, stop = (ctypes.c_char * 4096).from_buffer(mmap.mmap(-1, 4096)), []
def swap():
    while not stop:
        path.value = b'/usr/bin/false'
        path.value = sys.argv[1].encode()
t = threading.Thread(target=swap)
t.start()
ends = set()
for _ in range(200):
    pid = os.fork()
    if pid == 0:
        for _ in range(100): ctypes.CDLL(None).execve(path, (ctypes.c_char_p * 2)(b'x', None), None)
        os._exit(7)
    ends.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.append(1)
t.join()
print(sorted(ends))
`, dir + "/true"},
		Programs: []string{"false"}, Mounts: []Mount{{Source: dir, To: dir}},
	})
	// The exit codes mean: 1, the listed program ran; 7, all calls were refused; 0, the other program ran.
	if got != "[1]" && got != "[1, 7]" {
		t.Errorf("the programs ended with the codes %s, want 1, perhaps 7, and never 0", got)
	}
}
