//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Survey checks the mechanisms of the tier standard. The last finding is the sandbox
// as a whole, checked with canaries; the others help to find the cause of a failure.
func Survey(ctx context.Context, proofs string) []Finding {
	return []Finding{
		surveyBubblewrap(ctx), surveyNamespaces(ctx), surveyCgroups(), surveyLandlock(), surveySeccomp(),
		surveyTier(ctx, "sandbox", Standard, proofs),
	}
}

func surveyBubblewrap(ctx context.Context) Finding {
	f := Finding{Name: "bubblewrap"}
	text, err := exec.CommandContext(ctx, "bwrap", "--version").Output()
	if err != nil {
		f.Detail, f.Fix = "bwrap cannot be run", "install bubblewrap, for example: apt install bubblewrap"
		return f
	}
	f.OK, f.Detail = true, strings.TrimSpace(string(text))
	return f
}

func surveyNamespaces(ctx context.Context) Finding {
	f := Finding{Name: "user namespaces"}
	cmd := exec.CommandContext(ctx, "bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc", "true")
	text, err := cmd.CombinedOutput()
	if err != nil {
		m := missing(&setupError{"bubblewrap", strings.TrimSpace(string(text))})
		f.Detail = "bwrap cannot create one"
		f.Fix = cmp.Or(m.Fix, "allow user namespaces: set sysctl user.max_user_namespaces above 0")
		return f
	}
	f.OK, f.Detail = true, "available"
	return f
}

func surveyCgroups() Finding {
	f := Finding{Name: "cgroups"}
	m, err := find(Standard, "")
	if err == nil {
		defer m.exe.Close()
		var g *group
		if g, err = m.groups.create(bounds{memory: 64 << 20, pids: minProcesses, cpu: 1}); err == nil {
			err = g.remove()
		}
	}
	if err != nil {
		if s, ok := errors.AsType[*setupError](err); ok && s.what == "bubblewrap" {
			f.Detail, f.Fix = "not checked without bubblewrap", "install bubblewrap first"
			return f
		}
		f.Detail = "memory, processes and CPU cannot be limited: " + err.Error()
		f.Fix = missing(&setupError{"cgroup", ""}).Fix
		return f
	}
	version := "version 1"
	if m.groups.unified {
		version = "version 2"
	}
	f.OK, f.Detail = true, version+" with memory, pids and cpu"
	return f
}

func surveyLandlock() Finding {
	f := Finding{Name: "landlock"}
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 2 {
		f.Detail, f.Fix = "the kernel has no Landlock, or a version that is too old", missing(&setupError{"landlock", ""}).Fix
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("version %d", version)
	return f
}

func surveySeccomp() Finding {
	f := Finding{Name: "seccomp"}
	// This only asks whether the kernel knows the action.
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		f.Detail, f.Fix = "filters cannot be set: "+errno.Error(), missing(&setupError{"seccomp", ""}).Fix
		return f
	}
	f.OK, f.Detail = true, "filters can be set"
	return f
}
