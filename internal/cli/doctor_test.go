package cli_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// If nothing is missing, ambit doctor exits with 0.
func TestDoctorFindsNothingMissing(t *testing.T) {
	sandboxtest.Need(t)
	t.Setenv("AMBIT_HOME", filepath.Join(t.TempDir(), "home"))
	var out, errOut bytes.Buffer
	if code := cli.Run(t.Context(), []string{"doctor", "--json"}, strings.NewReader(""), &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out.String(), errOut.String())
	}
	var doc struct {
		Checks []struct {
			Name, Detail, Fix string
			OK                bool
		}
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || len(doc.Checks) < 10 {
		t.Fatalf("%v: %s", err, out.String())
	}
	for _, c := range doc.Checks {
		if c.Detail == "" || c.OK == (c.Fix != "") {
			t.Errorf("a check needs a detail, and a fix only if it failed: %+v", c)
		}
	}
}
