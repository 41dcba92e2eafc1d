//go:build amd64 || arm64

package sandbox

import (
	"cmp"
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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// proven caches the results of findProven. It contains only tiers that work. A failure is not cached, because an
// administrator may fix the machine while a daemon runs.
var proven struct {
	sync.Mutex
	machines map[Tier]*machine
	watched  *os.File // the pipe to the watcher process, which stays open until ambit exits
}

func run(ctx context.Context, s Spec) (Outcome, error) {
	m, err := findProven(ctx, s.Tier, s.Proofs)
	if err != nil {
		return Outcome{}, err
	}
	var out Outcome
	if s.Pool.accepts(&s) {
		out, err = s.Pool.run(ctx, m, &s)
	} else {
		out, _, err = m.run(ctx, &s, "")
	}
	return out, asRefusal(s.Tier, err)
}

// asRefusal converts a *setupError to a refusal. It returns other errors unchanged.
func asRefusal(t Tier, err error) error {
	if f, ok := errors.AsType[*setupError](err); ok {
		return unavailable(t, asMissing(f))
	}
	return err
}

func check(ctx context.Context, t Tier, proofs string) error {
	_, err := findProven(ctx, t, proofs)
	return err
}

// findProven returns the isolation mechanisms of a tier. It runs the canaries to check that the mechanisms work,
// unless an earlier result is cached or stored.
func findProven(ctx context.Context, t Tier, proofs string) (*machine, error) {
	proven.Lock()
	defer proven.Unlock()
	if m := proven.machines[t]; m != nil {
		return m, nil
	}
	m, err := find(t, proofs)
	if err == nil {
		m.groups.sweep()
		if proven.watched == nil {
			proven.watched, err = m.groups.watch()
		}
	}
	if err != nil {
		return nil, asRefusal(t, asSetupError(err))
	}
	if key := m.key(); !proofStored(proofs, t, key) {
		if err := m.prove(ctx); err != nil {
			return nil, asRefusal(t, err)
		}
		storeProof(proofs, t, key)
	}
	if proven.machines == nil {
		proven.machines = map[Tier]*machine{}
	}
	proven.machines[t] = m
	return m, nil
}

// find locates the isolation mechanisms of a tier. It does not check that the mechanisms work.
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
	if t == Confined && (err != nil || m.groups.try() != nil) {
		m.groups, err = hierarchy{}, nil
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

// try checks that ambit can create a cgroup and remove it.
func (h hierarchy) try() error {
	g, err := h.create(bounds{memory: 64 << 20, pids: minProcesses, cpu: 1})
	if err != nil {
		return err
	}
	return g.remove()
}

func findBubblewrap() (string, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return "", errors.New("bwrap is not installed")
	}
	return filepath.Abs(path)
}

// canaryWall is the time limit of a canary. It is long enough for a busy machine.
const canaryWall = 30 * time.Second

// prove runs the canaries. It returns an error if a forbidden action succeeds.
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
	memory := int64(64)
	if len(m.groups.parents) == 0 {
		canaries = canaries[:3] // without a cgroup, no limit applies to the memory of all processes together
		memory = confinedMB     // the runtime of the canary reserves more memory than it uses
	}
	for _, canary := range canaries {
		s := Spec{Tier: m.tier, Argv: []string{canary, release}, MemoryMB: memory, DiskMB: 4, PIDs: 32, Wall: canaryWall}
		s.defaults()
		out, report, err := m.run(ctx, &s, canary)
		switch {
		case err != nil:
			return err
		case report != nil && report.Text != "":
			return &setupError{report.What, "a test found that this mechanism does not work: " + report.Text}
		case canary == shim.CanaryMemory && !out.OOM:
			return &setupError{"cgroup memory", "a test program exceeded the memory limit and was not killed"}
		case canary != shim.CanaryMemory && report == nil:
			text := fmt.Sprintf("the test program for %s exited without a report (exit code %d)", canary, out.ExitCode)
			return &setupError{"sandbox", text}
		}
	}
	return nil
}

// key returns a hash of everything that can change the result of the canaries. It returns "" if part of the data cannot
// be read. A result without a key is not stored.
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

func proofName(t Tier) string { return "sandbox-proof-" + string(t) }

func proofStored(folder string, t Tier, key string) bool {
	if folder == "" || key == "" {
		return false
	}
	text, err := os.ReadFile(filepath.Join(folder, proofName(t)))
	return err == nil && strings.TrimSpace(string(text)) == key
}

// storeProof stores the proof of a tier. It ignores errors, because the next process can run the canaries again.
func storeProof(folder string, t Tier, key string) {
	if folder == "" || key == "" || os.MkdirAll(folder, 0o700) != nil {
		return
	}
	os.WriteFile(filepath.Join(folder, proofName(t)), []byte(key+"\n"), 0o600)
}

// asMissing converts a setup error to a [Missing], and adds a fix if one is known.
func asMissing(f *setupError) Missing {
	m := Missing{What: f.what, Detail: f.text}
	switch {
	case f.what == "bubblewrap" && strings.Contains(f.text, "bwrap is not installed"):
		m.Fix = "install bubblewrap, for example: apt install bubblewrap"
	case f.what == "gvisor" && strings.Contains(f.text, "runsc is not installed"):
		m.Fix = "install gVisor's runsc on PATH or in AMBIT_HOME, " +
			"or use --isolation standard if that is enough for this program"
	case f.what == "gvisor":
		m.Fix = "check that this user can run: runsc --rootless --network=none do true"
	case strings.Contains(f.text, "Unknown option"):
		m.Fix = "install bubblewrap 0.8 or newer"
	case f.what == "bubblewrap" && (strings.Contains(f.text, "RTM_NEWADDR") || strings.Contains(f.text, "uid map")):
		m.What = "user namespace"
		m.Fix = "because AppArmor restricts user namespaces, load a profile for bwrap with the rule `userns`, " +
			"or run: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	case f.what == "bubblewrap" && strings.Contains(f.text, "namespace"):
		m.What = "user namespace"
		m.Fix = "allow user namespaces: set sysctl kernel.unprivileged_userns_clone=1 and user.max_user_namespaces above 0"
	case strings.HasPrefix(f.what, "cgroup"):
		m.Fix = "give ambit cgroups with memory, pids and cpu: run ambit as root, as a service with Delegate=yes, " +
			"or with systemd-run --user --scope -p Delegate=yes ambit …"
	case f.what == "landlock":
		m.Fix = "use Linux 5.19 or newer; if Landlock is off, enable it with the boot parameter lsm=landlock,…"
	case f.what == "seccomp":
		m.Fix = "use a kernel with seccomp filters, and allow them if ambit runs in a container"
	case strings.Contains(f.text, unix.ENOSPC.Error()):
		m.Fix = "make more disk space available for temporary files, or set TMPDIR to a folder on another disk"
	case strings.Contains(f.text, unix.EMFILE.Error()):
		m.Fix = "let ambit open more files: raise `ulimit -n`, or LimitNOFILE= in ambit's systemd service"
	case f.what == "mounts":
		m.Fix = "check that the program's folder exists, and that its path contains no symbolic link"
	}
	return m
}

// Survey checks the mechanisms of the standard tier one by one. It then runs the canaries in complete sandboxes, for
// programs and for tool servers.
func Survey(ctx context.Context, proofs string) []Finding {
	return []Finding{
		surveyBubblewrap(ctx), surveyNamespaces(ctx), surveyCgroups(), surveyLandlock(), surveySeccomp(),
		surveyTier(ctx, "sandbox", Standard, proofs), surveyConfined(ctx, proofs),
	}
}

// surveyConfined checks the tier of tool servers and reports the limits that apply.
func surveyConfined(ctx context.Context, proofs string) Finding {
	f := surveyTier(ctx, "tool servers", Confined, proofs)
	if !f.OK {
		return f
	}
	proven.Lock()
	defer proven.Unlock()
	memory, by := "all processes together", "a cgroup"
	if len(proven.machines[Confined].groups.parents) == 0 {
		memory, by = "each process", "rlimits, because ambit has no delegated cgroup"
	}
	f.Detail = fmt.Sprintf("confined; limits of each server: %d MB of memory for %s, %d processes, "+
		"%d open files, %d MB in its private folder, %d MB in /tmp; memory and processes are limited by %s",
		confinedMB, memory, confinedPIDs, shim.OpenFiles, confinedMB, confinedMB/4, by)
	return f
}

// newFinding returns a finding. The finding is OK if fix is empty, because a mechanism that works needs no fix.
func newFinding(name, detail, fix string) Finding {
	return Finding{Name: name, OK: fix == "", Detail: detail, Fix: fix}
}

func surveyBubblewrap(ctx context.Context) Finding {
	text, err := exec.CommandContext(ctx, "bwrap", "--version").Output()
	if err != nil {
		return newFinding("bubblewrap", "bwrap cannot be run", "install bubblewrap, for example: apt install bubblewrap")
	}
	return newFinding("bubblewrap", strings.TrimSpace(string(text)), "")
}

func surveyNamespaces(ctx context.Context) Finding {
	text, err := exec.CommandContext(ctx, "bwrap", "--unshare-all", "--unshare-user", "--disable-userns",
		"--ro-bind", "/", "/", "--proc", "/proc", "true").CombinedOutput()
	if err != nil {
		m := asMissing(&setupError{"bubblewrap", strings.TrimSpace(string(text))})
		return newFinding("user namespaces", "bwrap cannot create a user namespace",
			cmp.Or(m.Fix, "allow user namespaces: set sysctl user.max_user_namespaces above 0"))
	}
	return newFinding("user namespaces", "available", "")
}

func surveyCgroups() Finding {
	m, err := find(Standard, "")
	if err == nil {
		defer m.exe.Close()
		err = m.groups.try()
	}
	if s, ok := errors.AsType[*setupError](err); ok && s.what == "bubblewrap" {
		return newFinding("cgroups", "not checked, because bubblewrap is missing", "install bubblewrap first")
	}
	if err != nil {
		return newFinding("cgroups", "memory, processes and CPU cannot be limited: "+err.Error(),
			asMissing(&setupError{"cgroup", ""}).Fix)
	}
	version := "version 1"
	if m.groups.unified {
		version = "version 2"
	}
	return newFinding("cgroups", version+" with the controllers memory, pids and cpu", "")
}

func surveyLandlock() Finding {
	version, err := shim.LandlockVersion()
	if err != nil {
		return newFinding("landlock", err.Error(), asMissing(&setupError{"landlock", ""}).Fix)
	}
	return newFinding("landlock", fmt.Sprintf("version %d", version), "")
}

func surveySeccomp() Finding {
	// This call only asks whether the kernel supports the action. It installs no filter.
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return newFinding("seccomp", "filters cannot be installed: "+errno.Error(), asMissing(&setupError{"seccomp", ""}).Fix)
	}
	return newFinding("seccomp", "filters can be installed", "")
}
