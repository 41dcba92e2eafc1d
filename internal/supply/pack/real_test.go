package pack

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// fetchReal fetches a package from the registry that npm is configured to use. If the registry is
// unreachable, the test is skipped; in CI, the test fails instead.
func fetchReal(t *testing.T, s *Store, ref Ref, want Want) *Package {
	t.Helper()
	p, err := s.Fetch(context.Background(), ref, want, nil)
	if errors.Is(err, FetchFailed) && os.Getenv("CI") != "true" {
		t.Skipf("this test needs the npm registry: %v", err)
	}
	check(t, err)
	return p
}

// A small published package can be fetched and run.
func TestRealPackage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ref := Ref{Kind: NPM, Name: "mkdirp", Version: "3.0.1"}
	p := fetchReal(t, s, ref, Want{})
	const digest = "sha256:fc7a7c3d357bb9f265e78ef38d108f1aa2bd86e9e781d5bcc28250b3dcdc8ebf"
	if p.Digest != digest {
		t.Errorf("got the digest %s, want %s", p.Digest, digest)
	}
	argv := p.Argv([]string{"--version"})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if strings.TrimSpace(string(out)) != "3.0.1" {
		t.Errorf("the program printed %q, %v; want its version 3.0.1", out, err)
	}
}
