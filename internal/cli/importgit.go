package cli

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// cloneTime bounds how long a repository may take.
const cloneTime = 5 * time.Minute

// isRepository reports whether a source is the address of a git repository.
func isRepository(src string) bool {
	for _, scheme := range []string{"https://", "ssh://", "git@", "file://"} {
		if strings.HasPrefix(src, scheme) {
			return strings.HasSuffix(src, ".git")
		}
	}
	return false
}

// cloneTo is the folder of a clone: beside the manifest, called like the repository.
func cloneTo(src, output string) string {
	return filepath.Join(filepath.Dir(output), strings.TrimSuffix(path.Base(src), ".git"))
}

// clone clones a repository into the folder of the manifest, and returns the path. It runs
// nothing from the repository: no hooks, no filters, no submodules.
func (t *terminal) clone(ctx context.Context, src, output string) (string, error) {
	if output == "" || output == "-" {
		return "", usage("add -o FILE", "a repository is cloned into the folder of its manifest, so the manifest needs a file")
	}
	to := cloneTo(src, output)
	if _, err := os.Lstat(to); err == nil {
		return "", no("import that folder, or move it away", "%s already exists", to)
	}
	ctx, cancel := context.WithTimeout(ctx, cloneTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "-c", "core.hooksPath="+os.DevNull, "-c", "core.symlinks=false", "-c", "protocol.ext.allow=never",
		"-c", "core.fsmonitor=false", "clone", "--quiet", "--depth=1", "--no-recurse-submodules", "--", src, to)
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_LFS_SKIP_SMUDGE=1")
	if said, err := cmd.CombinedOutput(); err != nil {
		if _, missing := exec.LookPath("git"); missing != nil {
			return "", &failure{code: exitMissing, err: missing, hint: "install git, or clone the repository elsewhere and import the folder"}
		}
		return "", no("check the address, and that git can reach it", "the repository cannot be cloned: %s", diag.Printable(strings.TrimSpace(string(said))))
	}
	return to, nil
}
