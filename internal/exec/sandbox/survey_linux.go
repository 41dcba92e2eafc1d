//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Survey tells what there is to isolate programs with. The last finding is the
// sandbox as a whole, as canaries found it; the others say where to look if it
// does not stand.
func Survey(ctx context.Context, proofs string) []Finding {
	return []Finding{surveyBubblewrap(ctx), surveyNamespaces(ctx), surveyCgroups(), surveyLandlock(), surveySeccomp(), surveyWhole(ctx, proofs)}
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
		f.Detail, f.Fix = "bwrap cannot make one", m.Fix
		if m.Fix == "" {
			f.Fix = "allow user namespaces: sysctl user.max_user_namespaces above 0"
		}
		return f
	}
	f.OK, f.Detail = true, "can be made"
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
			f.Detail, f.Fix = "not looked at without bubblewrap", "install bubblewrap first"
			return f
		}
		f.Detail, f.Fix = "memory, processes and CPU cannot be bounded: "+err.Error(), missing(&setupError{"cgroup", ""}).Fix
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
		f.Detail, f.Fix = "the kernel has none, or too old a one", missing(&setupError{"landlock", ""}).Fix
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("version %d", version)
	return f
}

func surveySeccomp() Finding {
	f := Finding{Name: "seccomp"}
	// Asks whether the kernel knows the action, and changes nothing.
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if err := seccompKnows(&action); err != nil {
		f.Detail, f.Fix = "filters cannot be set: "+err.Error(), missing(&setupError{"seccomp", ""}).Fix
		return f
	}
	f.OK, f.Detail = true, "filters can be set"
	return f
}

func surveyWhole(ctx context.Context, proofs string) Finding {
	f := Finding{Name: "sandbox"}
	if err := check(ctx, Standard, proofs); err != nil {
		f.Detail = err.Error()
		if u, ok := errors.AsType[*Unavailable](err); ok {
			f.Detail, f.Fix = u.Message, u.Hint
		}
		return f
	}
	f.OK, f.Detail = true, "programs can be isolated at the tier standard: canaries were stopped"
	return f
}
