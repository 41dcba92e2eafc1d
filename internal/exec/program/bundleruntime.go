package program

import (
	"cmp"
	"context"
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
			continue // cannot happen, because the patterns are constants
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
	if ctx.Err() == nil { // otherwise, the list may be incomplete
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
// accepts every version.
func findInterpreter(ctx context.Context, kind, version string) (string, error) {
	all := installed(ctx, kind)
	fits := func(*semver.Version) bool { return true }
	if version != "" {
		c, err := semver.NewConstraint(version)
		if err != nil {
			return "", failed(NotStarted, "runtime.version %s is not a version constraint", diag.Quote(version))
		}
		fits = c.Check
	}
	var have []string
	for _, i := range all {
		if fits(i.version) {
			return i.path, nil
		}
		have = append(have, i.version.String())
	}
	name := strings.TrimSuffix(kind, "3")
	needed := strings.TrimSpace(name + " " + version)
	r := call.Refuse(sandbox.Stage, call.ServerUnavailable, "the bundle needs %s; installed under /usr: %s",
		needed, cmp.Or(strings.Join(have, ", "), "no "+name))
	r.Hint = "install " + needed + " under /usr, or change runtime.version in the manifest"
	return "", &Lacking{r}
}
