package pack

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// fetchReal fetches from the registry that npm is set up for. Where it cannot be
// reached the test is skipped, but under CI=true it fails.
func fetchReal(t *testing.T, s *Store, ref Ref, want Want) *Package {
	t.Helper()
	p, err := s.Fetch(context.Background(), ref, want, nil)
	if errors.Is(err, FetchFailed) && os.Getenv("CI") != "true" {
		t.Skipf("this test needs the npm registry: %v", err)
	}
	check(t, err)
	return p
}

// One small package as it is published, all the way from its name to its run.
func TestRealPackage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ref := Ref{Kind: NPM, Name: "mkdirp", Version: "3.0.1"}
	p := fetchReal(t, s, ref, Want{})
	const digest = "sha256:fc7a7c3d357bb9f265e78ef38d108f1aa2bd86e9e781d5bcc28250b3dcdc8ebf"
	if p.Digest != digest {
		t.Errorf("its digest is %s", p.Digest)
	}
	argv := p.Argv([]string{"--version"})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if strings.TrimSpace(string(out)) != "3.0.1" {
		t.Errorf("it says %q, %v", out, err)
	}
}
