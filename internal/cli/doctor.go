package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// doctorCheck is one check of ambit doctor.
type doctorCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"`
	// Optional means that ambit works without it.
	Optional bool `json:"optional"`
}

// doctorTime bounds all checks together.
const doctorTime = 2 * time.Minute

func newDoctor(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		GroupID: groupHelp,
		Short:   "Check what works on this machine, and how to install the rest",
		Long: "Check what works on this machine, and how to install the rest. Isolation is tried out, not looked up.\n" +
			"Exits 3 if something that agents need is missing; gVisor and npm are optional.",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTime)
			defer cancel()
			checks := t.runChecks(ctx)
			if err := t.show(map[string]any{"checks": checks}, func() { t.printChecks(checks) }); err != nil {
				return err
			}
			if slices.ContainsFunc(checks, func(c doctorCheck) bool { return !c.OK && !c.Optional }) {
				return errMissing
			}
			return nil
		},
	}
}

// runChecks runs all checks.
func (t *terminal) runChecks(ctx context.Context) []doctorCheck {
	h, homeErr := home.Find()
	var checks []doctorCheck
	checks = append(checks, examineSandbox(sandbox.Survey(ctx, ""))...)
	checks = append(checks, examineGVisor(ctx, h))
	checks = append(checks, examineRuntime(ctx, "node", "nodejs"), examineRuntime(ctx, "python3", "python3"), examineNPM(ctx))
	if homeErr != nil {
		return append(checks, doctorCheck{Name: "store", Detail: homeErr.Error(), Fix: "set AMBIT_HOME to a folder"})
	}
	return append(checks, examineSettings(h), t.examineStore(ctx, h), examineVault(h))
}

// examineSandbox converts the findings of the sandbox. Namespaces are tested with bubblewrap,
// so without it their state is unknown.
func examineSandbox(found []sandbox.Finding) (checks []doctorCheck) {
	lacking := slices.ContainsFunc(found, func(f sandbox.Finding) bool { return f.Name == "bubblewrap" && !f.OK })
	for _, f := range found {
		if f.Name == "user namespaces" && lacking {
			f.Detail, f.Fix = "not tested without bubblewrap", "install bubblewrap first"
		}
		checks = append(checks, doctorCheck{Name: f.Name, OK: f.OK, Detail: f.Detail, Fix: f.Fix})
	}
	return checks
}

func examineSettings(h home.Home) doctorCheck {
	if err := checkSettings(h); err != nil {
		return doctorCheck{Name: "settings", Detail: err.Error(), Fix: "edit " + diag.ShellWord(h.Config())}
	}
	if _, err := os.Stat(h.Config()); err != nil {
		return doctorCheck{Name: "settings", OK: true, Detail: "there are none; they would be in " + h.Config()}
	}
	return doctorCheck{Name: "settings", OK: true, Detail: h.Config()}
}

// programPath is the PATH of programs in the sandbox.
var programPath = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// examineRuntime looks for an interpreter in programPath, not in the PATH of the shell.
func examineRuntime(ctx context.Context, name, pack string) doctorCheck {
	for _, dir := range programPath {
		if version, err := versionOf(ctx, filepath.Join(dir, name)); err == nil {
			return doctorCheck{Name: name, OK: true, Detail: version + " in " + dir}
		}
	}
	return doctorCheck{
		Name: name, Detail: "there is none in " + strings.Join(programPath, ", ") + ", which is where programs find it",
		Fix: "install it for the whole machine, for example: apt install " + pack,
	}
}

func examineNPM(ctx context.Context) doctorCheck {
	version, err := versionOf(ctx, "npm")
	if err != nil {
		return doctorCheck{Name: "npm", Detail: "there is none", Fix: "install npm to lock and start servers that are npm packages", Optional: true}
	}
	return doctorCheck{Name: "npm", OK: true, Detail: version, Optional: true}
}

// examineGVisor tests the isolation tier strong, which is optional.
func examineGVisor(ctx context.Context, h home.Home) doctorCheck {
	f := sandbox.SurveyStrong(ctx, h.Dir())
	return doctorCheck{Name: f.Name, OK: f.OK, Detail: f.Detail, Fix: f.Fix, Optional: true}
}

// versionOf returns the first line of a program's --version.
func versionOf(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first), err
}

// examineStore opens the store if there is one. If not, it tests whether one can be created.
func (t *terminal) examineStore(ctx context.Context, h home.Home) doctorCheck {
	if err := h.Writable(); err != nil {
		return doctorCheck{Name: "store", Detail: "cannot write to " + h.Dir() + ": " + err.Error(), Fix: writableHome}
	}
	if _, err := os.Stat(h.State()); errors.Is(err, fs.ErrNotExist) {
		return doctorCheck{Name: "store", OK: true, Detail: "there is none yet; it will be created in " + h.Dir()}
	}
	b, err := t.openStore(ctx, "")
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		c := doctorCheck{Name: "store", Detail: err.Error(), Fix: "see what is wrong there, or use another AMBIT_HOME"}
		if f, ok := errors.AsType[*failure](err); ok && f.hint != "" {
			c.Fix = f.hint
		}
		return c
	}
	if openToAll(h.Root()) {
		return doctorCheck{
			Name: "store", Detail: "every user of this machine can read " + h.Root() + ", and with it sign and unseal",
			Fix: "chmod 600 " + diag.ShellWord(h.Root()) + "; then replace the key: ambit rotate root",
		}
	}
	return doctorCheck{Name: "store", OK: true, Detail: h.State()}
}

// openToAll reports whether every user of the machine can read a key of the home.
func openToAll(key string) bool {
	if runtime.GOOS == "windows" {
		return false // there these bits say nothing
	}
	may := fs.FileMode(0o004) // read the file, and pass through its folders
	for _, path := range []string{key, filepath.Dir(key), filepath.Dir(filepath.Dir(key))} {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&may == 0 {
			return false
		}
		may = 0o001
	}
	return true
}

func examineVault(h home.Home) doctorCheck {
	entries, err := credential.Open(h).List()
	if err != nil {
		c := doctorCheck{Name: "vault", Detail: err.Error()}
		if f, ok := errors.AsType[*failure](vaultFailure(err)); ok && f.hint != "" {
			c.Fix = f.hint
		}
		return c
	}
	return doctorCheck{Name: "vault", OK: true, Detail: count(len(entries), "credential")}
}

func (t *terminal) printChecks(checks []doctorCheck) {
	missing := 0
	for _, c := range checks {
		mark, detail, remedy := t.paint(green, "✓"), diag.Printable(c.Detail), "to fix it: "
		switch {
		case c.OK:
		case c.Optional:
			mark, detail, remedy = t.paint(yellow, "-"), "not installed, and most agents work without it: "+detail, "to have it: "
		default:
			mark = t.paint(red, "✗")
			missing++
		}
		t.printf("%s %s: %s\n", mark, c.Name, detail)
		if !c.OK && c.Fix != "" {
			t.printf("    %s\n", t.paint(dim, remedy+diag.Printable(c.Fix)))
		}
	}
	if missing > 0 {
		verb := "are"
		if missing == 1 {
			verb = "is"
		}
		t.printf("%s\n", t.paint(boldRed, count(missing, "thing")+" that agents need "+verb+" missing"))
		return
	}
	t.printf("%s\n", t.paint(green, "everything that agents need is here"))
}
