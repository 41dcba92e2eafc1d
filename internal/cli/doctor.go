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

// ailment is one check of ambit doctor.
type ailment struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"`
	// Spare marks what ambit works without.
	Spare bool `json:"optional"`
}

// doctorTime bounds every check together.
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
			checks := t.examine(ctx)
			var err error
			if t.json {
				err = t.document(map[string]any{"checks": checks})
			} else {
				t.ailments(checks)
			}
			for _, c := range checks {
				if err == nil && !c.OK && !c.Spare {
					return errMissing
				}
			}
			return err
		},
	}
}

// examine carries out the checks.
func (t *terminal) examine(ctx context.Context) []ailment {
	h, homeErr := home.Find()
	var checks []ailment
	checks = append(checks, examineSandbox(sandbox.Survey(ctx, ""))...)
	checks = append(checks, examineGVisor(ctx, h))
	checks = append(checks, examineRuntime(ctx, "node", "nodejs"), examineRuntime(ctx, "python3", "python3"), examineNPM(ctx))
	if homeErr != nil {
		return append(checks, ailment{Name: "store", Detail: homeErr.Error(), Fix: "set AMBIT_HOME to a folder"})
	}
	return append(checks, examineSettings(h), t.examineStore(ctx, h), examineVault(h))
}

// examineSandbox takes over what was found. Namespaces are tried with bubblewrap:
// where that is missing, nothing is known of them.
func examineSandbox(found []sandbox.Finding) (checks []ailment) {
	lacking := slices.ContainsFunc(found, func(f sandbox.Finding) bool { return f.Name == "bubblewrap" && !f.OK })
	for _, f := range found {
		if f.Name == "user namespaces" && lacking {
			f.Detail, f.Fix = "not looked at without bubblewrap", "install bubblewrap first"
		}
		checks = append(checks, ailment{Name: f.Name, OK: f.OK, Detail: f.Detail, Fix: f.Fix})
	}
	return checks
}

func examineSettings(h home.Home) ailment {
	if err := checkSettings(h); err != nil {
		return ailment{Name: "settings", Detail: err.Error(), Fix: "edit " + diag.ShellWord(h.Config())}
	}
	if _, err := os.Stat(h.Config()); err != nil {
		return ailment{Name: "settings", OK: true, Detail: "there are none; they would be in " + h.Config()}
	}
	return ailment{Name: "settings", OK: true, Detail: h.Config()}
}

// programPath is where programs in the sandbox find their runtimes.
var programPath = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// examineRuntime looks for an interpreter where programs find it, which is not
// where a person's shell does.
func examineRuntime(ctx context.Context, name, pack string) ailment {
	for _, dir := range programPath {
		if version, err := versionOf(ctx, filepath.Join(dir, name)); err == nil {
			return ailment{Name: name, OK: true, Detail: version + " in " + dir}
		}
	}
	return ailment{
		Name: name, Detail: "there is none in " + strings.Join(programPath, ", ") + ", which is where programs find it",
		Fix: "install it for the whole machine, for example: apt install " + pack,
	}
}

func examineNPM(ctx context.Context) ailment {
	version, err := versionOf(ctx, "npm")
	if err != nil {
		return ailment{Name: "npm", Detail: "there is none", Fix: "install npm to lock and start servers that are npm packages", Spare: true}
	}
	return ailment{Name: "npm", OK: true, Detail: version, Spare: true}
}

// examineGVisor tries the tier strong, which nothing needs that does not ask for
// it.
func examineGVisor(ctx context.Context, h home.Home) ailment {
	f := sandbox.SurveyStrong(ctx, h.Dir())
	return ailment{Name: f.Name, OK: f.OK, Detail: f.Detail, Fix: f.Fix, Spare: true}
}

// versionOf is the first line that a program says of itself.
func versionOf(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first), err
}

// examineStore opens the store if there is one, and makes none: that it could be
// made is tried.
func (t *terminal) examineStore(ctx context.Context, h home.Home) ailment {
	if err := h.Writable(); err != nil {
		return ailment{Name: "store", Detail: "nothing can be kept in " + h.Dir() + ": " + err.Error(), Fix: writableHome}
	}
	if _, err := os.Stat(h.State()); errors.Is(err, fs.ErrNotExist) {
		return ailment{Name: "store", OK: true, Detail: "there is none yet; it will be made in " + h.Dir()}
	}
	b, err := t.books(ctx, "")
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		c := ailment{Name: "store", Detail: err.Error(), Fix: "see what is wrong there, or use another AMBIT_HOME"}
		if f, ok := errors.AsType[*failure](err); ok && f.hint != "" {
			c.Fix = f.hint
		}
		return c
	}
	if openToAll(h.Root()) {
		return ailment{Name: "store", Detail: "everybody on this machine can read " + h.Root() + ", and with it sign and unseal", Fix: "chmod 600 " + diag.ShellWord(h.Root()) + "; then make a new one: ambit rotate root"}
	}
	return ailment{Name: "store", OK: true, Detail: h.State()}
}

// openToAll reports whether any user of the machine can read a key of the home.
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

func examineVault(h home.Home) ailment {
	entries, err := credential.Open(h).List()
	if err != nil {
		c := ailment{Name: "vault", Detail: err.Error()}
		if f, ok := errors.AsType[*failure](vaultFailure(err)); ok && f.hint != "" {
			c.Fix = f.hint
		}
		return c
	}
	return ailment{Name: "vault", OK: true, Detail: count(len(entries), "credential")}
}

func (t *terminal) ailments(checks []ailment) {
	missing := 0
	for _, c := range checks {
		mark, detail, remedy := t.paint(green, "✓"), diag.Printable(c.Detail), "to fix it: "
		switch {
		case c.OK:
		case c.Spare:
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
