package program

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// interpreter is an interpreter under /usr, where sandboxes can see it.
type interpreter struct {
	path    string
	version *semver.Version
}

var interpreterPatterns = map[string][]string{
	"node": {
		"/usr/local/bin/node*", "/usr/bin/node*", "/usr/local/lib/node*/bin/node", "/usr/lib/node*/bin/node",
		"/usr/local/node*/bin/node", "/usr/local/n/versions/node/*/bin/node",
	},
	"python3": {
		"/usr/local/bin/python3*", "/usr/bin/python3*", "/usr/local/lib/python*/bin/python3",
		"/usr/local/python*/bin/python3",
	},
}

var interpreterName = regexp.MustCompile(`^(?:node(?:js)?|python3)[-.0-9]*$`)

// interpreters caches the installed interpreters of each kind.
var interpreters = struct {
	sync.Mutex
	of map[string][]interpreter
}{of: map[string][]interpreter{}}

func installed(ctx context.Context, kind string) []interpreter {
	interpreters.Lock()
	defer interpreters.Unlock()
	if found := interpreters.of[kind]; len(found) > 0 {
		return found
	}
	var found []interpreter
	seen := map[string]bool{}
	for _, pattern := range interpreterPatterns[kind] {
		files, err := filepath.Glob(pattern)
		if err != nil {
			continue // the patterns are constants, so this cannot happen
		}
		for _, file := range files {
			real, err := filepath.EvalSymlinks(file)
			if err != nil || seen[real] || !strings.HasPrefix(real, "/usr/") ||
				!interpreterName.MatchString(filepath.Base(file)) {
				continue
			}
			seen[real] = true
			if v := versionOf(ctx, file); v != nil {
				found = append(found, interpreter{file, v})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b interpreter) int { return b.version.Compare(a.version) })
	if ctx.Err() == nil { // if the context has ended, the list may be incomplete
		interpreters.of[kind] = found
	}
	return found
}

// versionOf runs an interpreter to get its version. It returns nil if the run fails.
func versionOf(ctx context.Context, file string) *semver.Version {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, "--version")
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	words := strings.Fields(string(out))
	if len(words) == 0 {
		return nil
	}
	v, err := semver.NewVersion(strings.TrimSuffix(strings.TrimPrefix(words[len(words)-1], "v"), "+"))
	if err != nil {
		return nil
	}
	return v
}

// findInterpreter returns the newest installed interpreter that satisfies a version constraint. An empty constraint
// accepts every version. The constraint is only a preference: if no interpreter satisfies it, findInterpreter returns
// the nearest version, together with a warning.
func findInterpreter(ctx context.Context, kind, version string) (path, warning string, err error) {
	name := strings.TrimSuffix(kind, "3")
	all := installed(ctx, kind)
	if len(all) == 0 {
		needed := strings.TrimSpace(name + " " + version)
		r := call.Refuse(sandbox.Stage, call.ServerUnavailable, "the bundle needs %s, but no %s is installed under /usr",
			needed, name)
		r.Hint = "install " + needed + " under /usr"
		return "", "", &Lacking{r}
	}
	if version == "" {
		return all[0].path, "", nil
	}
	c, err := semver.NewConstraint(version)
	if err != nil {
		return "", "", failed(NotStarted, "runtime.version %s is not a version constraint", diag.Quote(version))
	}
	i := slices.IndexFunc(all, func(i interpreter) bool { return c.Check(i.version) })
	if i < 0 {
		i = nearest(all, version)
		warning = fmt.Sprintf("warning: the bundle asks for %s %s, but runs on %s, the nearest version under /usr",
			name, version, all[i].version)
	}
	return all[i].path, warning, nil
}

var firstVersion = regexp.MustCompile(`[0-9]+(\.[0-9]+)*`)

// nearest returns the index of the interpreter that is closest to the first version in a constraint. It prefers a
// newer interpreter, because newer interpreters usually run older code. The list must start with the newest
// interpreter.
func nearest(all []interpreter, constraint string) int {
	wanted, err := semver.NewVersion(firstVersion.FindString(constraint))
	if err != nil {
		return 0
	}
	older := slices.IndexFunc(all, func(i interpreter) bool { return i.version.LessThan(wanted) })
	if older < 0 {
		return len(all) - 1
	}
	return max(older-1, 0)
}
