//go:build amd64 || arm64

package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// proven caches the machine after its canaries were stopped. A failure is not cached,
// because it may be fixed while a daemon runs.
var proven struct {
	sync.Mutex
	machine *machine // for Standard
	strong  *machine
	watched *os.File // open while this process lives; nil without a watcher
}

func run(ctx context.Context, s Spec) (Outcome, error) {
	m, err := ready(ctx, s.Tier, s.Proofs)
	if err != nil {
		return Outcome{}, err
	}
	var out Outcome
	if s.Pool.accepts(&s) {
		out, err = s.Pool.run(ctx, m, &s)
	} else {
		out, _, err = m.run(ctx, &s, "")
	}
	if f, ok := errors.AsType[*setupError](err); ok {
		err = unavailable(s.Tier, []Missing{missing(f)})
	}
	return out, err
}

func check(ctx context.Context, t Tier, proofs string) error {
	_, err := ready(ctx, t, proofs)
	return err
}

// ready returns the machine after its isolation was proven.
func ready(ctx context.Context, t Tier, proofs string) (*machine, error) {
	proven.Lock()
	defer proven.Unlock()
	known := &proven.machine
	if t == Strong {
		known = &proven.strong
	}
	if *known != nil {
		return *known, nil
	}
	m, err := find(t, proofs)
	if err == nil {
		m.groups.sweep()
		err = watched(m.groups)
	}
	if err == nil {
		key := m.key()
		if !proofStored(proofs, t, key) {
			if err = m.prove(ctx); err == nil {
				storeProof(proofs, t, key)
			}
		}
	}
	if f, ok := errors.AsType[*setupError](err); ok {
		return nil, unavailable(t, []Missing{missing(f)})
	}
	if err != nil {
		return nil, err
	}
	*known = m
	return m, nil
}

// watched starts the watcher before the first run.
func watched(h hierarchy) error {
	if proven.watched != nil {
		return nil
	}
	var err error
	if proven.watched, err = h.watch(); err != nil {
		return setup(err)
	}
	return nil
}

// find locates the mechanisms. It does not prove that they work.
func find(t Tier, folder string) (*machine, error) {
	m := &machine{tier: t}
	var err error
	if t == Strong {
		if m.runsc, err = findRunsc(folder); err != nil {
			return nil, &setupError{"gvisor", err.Error()}
		}
	} else if m.bwrap, err = findBubblewrap(); err != nil {
		return nil, &setupError{"bubblewrap", err.Error()}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, &setupError{"cgroup", err.Error()}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, &setupError{"cgroup", err.Error()}
	}
	if m.groups, err = findHierarchy(string(mounts), string(own)); err == nil {
		err = m.groups.prepare()
	}
	if err != nil {
		return nil, &setupError{"cgroup", err.Error()}
	}
	root := os.Geteuid() == 0
	if root {
		uids, err := os.ReadFile("/proc/self/uid_map")
		if err != nil {
			return nil, &setupError{"user", err.Error()}
		}
		if m.users, err = findUsers(string(uids)); err != nil {
			return nil, &setupError{"user", err.Error()}
		}
	}
	if m.exe, err = ownFile(root); err != nil {
		return nil, &setupError{"sandbox", err.Error()}
	}
	return m, nil
}

func findBubblewrap() (string, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return "", errors.New("bwrap is not installed")
	}
	return filepath.Abs(path)
}

// canaryWall is long, so that canaries also finish on a busy machine.
const canaryWall = 30 * time.Second

// prove runs the canaries and fails if one is not stopped.
func (m *machine) prove(ctx context.Context) error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return &setupError{"sandbox", err.Error()}
	}
	release := unix.ByteSliceToString(uts.Release[:])
	canaries := []string{shim.CanaryRules, shim.CanaryDisk, shim.CanaryForks, shim.CanaryMemory}
	if m.tier == Strong {
		canaries[0] = shim.CanaryKernel
	}
	for _, canary := range canaries {
		s := Spec{Tier: m.tier, Argv: []string{canary, release}, MemoryMB: 64, DiskMB: 4, PIDs: 32, Wall: canaryWall}
		s.defaults()
		out, report, err := m.run(ctx, &s, canary)
		switch {
		case err != nil:
			return err
		case report != nil && report.Text != "":
			return &setupError{report.What, "not enforced, as a canary showed: " + report.Text}
		case canary == shim.CanaryMemory && !out.OOM:
			return &setupError{"cgroup memory", "a canary exceeded the limit and was not killed"}
		case canary != shim.CanaryMemory && report == nil:
			return &setupError{"sandbox", fmt.Sprintf("the canary for %s did not report (exit code %d)", canary, out.ExitCode)}
		}
	}
	return nil
}

// key hashes everything that a proof depends on.
func (m *machine) key() string {
	h := sha256.New()
	var uts unix.Utsname
	if unix.Uname(&uts) != nil {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	fmt.Fprintf(h, "%s\n%s\n%s\n%d\n%v\n", uts.Release[:], uts.Version[:], boot, os.Geteuid(), m.groups.parents)
	for _, file := range []string{m.bwrap, m.runsc, "/proc/self/exe"} {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			return ""
		}
		fmt.Fprintf(h, "%s %d %d %s\n", file, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		fmt.Fprintln(h, build.Main.Version)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Seccomp") || strings.HasPrefix(line, "CapEff") || strings.HasPrefix(line, "NoNewPrivs") {
			h.Write([]byte(line))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// proofName returns the name of the file with a proof.
func proofName(t Tier) string { return "sandbox-proof-" + string(t) }

func proofStored(folder string, t Tier, key string) bool {
	if folder == "" || key == "" {
		return false
	}
	text, err := os.ReadFile(filepath.Join(folder, proofName(t)))
	return err == nil && strings.TrimSpace(string(text)) == key
}

// storeProof ignores errors: without the file, the proof is repeated.
func storeProof(folder string, t Tier, key string) {
	if folder == "" || key == "" || os.MkdirAll(folder, 0o700) != nil {
		return
	}
	os.WriteFile(filepath.Join(folder, proofName(t)), []byte(key+"\n"), 0o600)
}

// missing adds the fix for a mechanism that failed.
func missing(f *setupError) Missing {
	m := Missing{What: f.what, Detail: f.text}
	switch {
	case f.what == "bubblewrap" && strings.Contains(f.text, "bwrap is not installed"):
		m.Fix = "install bubblewrap, for example: apt install bubblewrap"
	case f.what == "gvisor" && strings.Contains(f.text, "runsc is not installed"):
		m.Fix = "install gVisor's runsc on PATH or in AMBIT_HOME, or use --isolation standard if that is enough for this program"
	case f.what == "gvisor":
		m.Fix = "check that this user can run: runsc --rootless --network=none do true"
	case strings.Contains(f.text, "Unknown option"):
		m.Fix = "install bubblewrap 0.8 or newer"
	case f.what == "bubblewrap" && (strings.Contains(f.text, "RTM_NEWADDR") || strings.Contains(f.text, "uid map")):
		m.What = "user namespace"
		m.Fix = "AppArmor restricts user namespaces: load a profile with the rule userns for bwrap, " +
			"or set sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	case f.what == "bubblewrap" && strings.Contains(f.text, "namespace"):
		m.What = "user namespace"
		m.Fix = "allow user namespaces: set sysctl kernel.unprivileged_userns_clone=1 and user.max_user_namespaces above 0"
	case strings.HasPrefix(f.what, "cgroup"):
		m.Fix = "give ambit cgroups with memory, pids and cpu: run it as root, as a service with Delegate=yes, " +
			"or with systemd-run --user --scope -p Delegate=yes ambit …"
	case f.what == "landlock":
		m.Fix = "use Linux 5.19 or newer with Landlock, and enable it with lsm=landlock,… if it is off"
	case f.what == "seccomp":
		m.Fix = "use a kernel with seccomp filters, and allow them if ambit runs in a container"
	case strings.Contains(f.text, unix.ENOSPC.Error()):
		m.Fix = "free disk space for temporary files, or set TMPDIR to another disk"
	case strings.Contains(f.text, unix.EMFILE.Error()):
		m.Fix = "let ambit open more files: raise ulimit -n, or LimitNOFILE of its service"
	case f.what == "mounts":
		m.Fix = "check that the program's folder exists, and that its path contains no symbolic link"
	}
	return m
}
