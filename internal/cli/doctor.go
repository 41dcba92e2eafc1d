package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// doctorCheck is the result of one check of "ambit doctor".
type doctorCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"`
	// Optional is set if ambit can be used even though the check failed.
	Optional bool `json:"optional"`
}

// doctorTime is the maximum time for all checks together.
const doctorTime = 2 * time.Minute

func newDoctor(t *terminal) *cobra.Command {
	var storeURL string
	cmd := verb("doctor", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		if storeURL != "" {
			if err := checkStoreURL(storeURL); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, doctorTime)
		defer cancel()
		checks := t.runChecks(ctx, storeURL)
		if err := t.show(map[string]any{"checks": checks}, func() { t.printChecks(checks) }); err != nil {
			return err
		}
		if slices.ContainsFunc(checks, func(c doctorCheck) bool { return !c.OK && !c.Optional }) {
			return errMissing
		}
		return nil
	})
	sharedStoreFlag(cmd.Flags(), &storeURL)
	return cmd
}

func good(name, detail string) doctorCheck { return doctorCheck{Name: name, OK: true, Detail: detail} }

func bad(name, detail, fix string) doctorCheck {
	return doctorCheck{Name: name, Detail: detail, Fix: fix}
}

func (t *terminal) runChecks(ctx context.Context, storeURL string) []doctorCheck {
	h, homeErr := home.Find()
	var checks []doctorCheck
	found := sandbox.Survey(ctx, "")
	lacking := slices.ContainsFunc(found, func(f sandbox.Finding) bool { return f.Name == "bubblewrap" && !f.OK })
	for _, f := range found {
		if f.Name == "user namespaces" && lacking { // testing user namespaces requires bubblewrap
			f.Detail, f.Fix = "not tested without bubblewrap", "install bubblewrap first"
		}
		checks = append(checks, doctorCheck{f.Name, f.OK, f.Detail, f.Fix, false})
	}
	f := sandbox.SurveyStrong(ctx, h.Dir())
	checks = append(checks, doctorCheck{f.Name, f.OK, f.Detail, f.Fix, true},
		examineRuntime(ctx, "node", "nodejs"), examineRuntime(ctx, "python3", "python3"))
	node := &checks[len(checks)-2]
	if known, err := catalog.Open(h); err == nil && node.OK {
		node.Detail += needNewerNode(node.Detail, known)
	}
	npm := bad("npm", "npm was not found", "install npm to lock and start servers that are npm packages")
	if version, err := versionOf(ctx, "npm"); err == nil {
		npm = good("npm", version)
	}
	npm.Optional = true
	checks = append(checks, npm)
	if homeErr != nil {
		return append(checks, bad("store", homeErr.Error(), "set AMBIT_HOME to a folder"))
	}
	settings := good("settings", h.Config())
	if err := checkSettings(h); err != nil {
		settings = bad("settings", err.Error(), "edit "+diag.ShellWord(h.Config()))
	} else if _, err := os.Stat(h.Config()); err != nil {
		settings.Detail = "there is no settings file; to change settings, create " + h.Config()
	}
	entries, err := credential.Open(h).List()
	vault := good("vault", count(len(entries), "credential"))
	if err != nil {
		vault = bad("vault", err.Error(), failureOf(vaultFailure(err)).hint)
	}
	checks = append(checks, settings, t.examineStore(ctx, h, storeURL), vault)
	// Ignore the error, because "ambit agents" reports folders that cannot be read.
	if signIns, err := examineSignIns(ctx, h); err == nil {
		checks = append(checks, signIns)
	}
	if names, err := examineNames(ctx, h); err == nil {
		checks = append(checks, names)
	}
	if providers := examineProviders(ctx, h); providers != nil {
		checks = append(checks, *providers)
	}
	return checks
}

// programPath is the PATH of programs in the sandbox.
var programPath = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// examineRuntime checks that an interpreter is in programPath. The PATH of the shell does not matter.
func examineRuntime(ctx context.Context, name, pack string) doctorCheck {
	for _, dir := range programPath {
		if version, err := versionOf(ctx, filepath.Join(dir, name)); err == nil {
			return good(name, version+" in "+dir)
		}
	}
	return bad(name, "not found in the PATH of sandboxed programs: "+strings.Join(programPath, ", "),
		"install it for all users, for example with: apt install "+pack)
}

var nodeVersion = regexp.MustCompile(`Node\.js (\d+(\.\d+)*)`)

// needNewerNode lists the servers of the catalogue that need a newer version of Node.js than the given one. It returns
// "" if there are none.
func needNewerNode(version string, known *catalog.Catalog) string {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), " ")
	have, err := semver.NewVersion(version)
	var list []string
	for _, id := range known.IDs() {
		needs := nodeVersion.FindStringSubmatch(known.Entries[id].Needs)
		if err != nil || needs == nil {
			continue
		}
		if least, err := semver.NewVersion(needs[1]); err == nil && have.LessThan(least) {
			list = append(list, path.Base(id)+" ("+needs[1]+")")
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; these servers of the catalogue need a newer version: " + strings.Join(list, ", ")
}

// versionOf runs a program with --version and returns the first line of its output.
func versionOf(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first), err
}

// examineStore checks that the store can be opened: the store at the URL, the running daemon's store, or the store in
// the home. If there is no store yet, it checks that one can be created.
func (t *terminal) examineStore(ctx context.Context, h home.Home, storeURL string) doctorCheck {
	if err := h.Writable(); err != nil {
		return bad("store", "cannot write to "+h.Dir()+": "+err.Error(), writableHome)
	}
	if d := t.daemonElsewhere(); storeURL == "" && d != nil {
		if t.sharedDaemon() == nil {
			return good("store", "not checked: the daemon at "+d.URL+" keeps its state at "+d.Store+
				", which needs a password; to check that store, run: ambit doctor --store URL")
		}
		storeURL = d.Store
	}
	place := h.State()
	if storeURL != "" {
		place, _ = withoutPassword(storeURL)
	} else if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		return good("store", "there is no store yet; it will be created in "+h.Dir())
	}
	b, err := t.openStoreWith(ctx, storeURL, store.Open)
	if err == nil {
		err = b.Close()
	}
	switch {
	case err != nil:
		hint := cmp.Or(failureOf(err).hint, "fix the problem, or set AMBIT_HOME to another folder")
		return bad("store", err.Error(), hint)
	case openToAll(h.Root()):
		return bad("store", "every user of this machine can read "+h.Root()+", and use it to sign records and read secrets",
			"chmod 600 "+diag.ShellWord(h.Root())+"; then, to replace the key, run: ambit rotate root")
	}
	return good("store", place)
}

// openToAll reports whether every user of the machine can read the key file.
func openToAll(key string) bool {
	if runtime.GOOS == "windows" {
		return false // Windows does not use these permission bits
	}
	bit := fs.FileMode(0o004) // other users can read the file
	for _, path := range []string{key, filepath.Dir(key), filepath.Dir(filepath.Dir(key))} {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&bit == 0 {
			return false
		}
		bit = 0o001 // other users can enter the folder
	}
	return true
}

func (t *terminal) printChecks(checks []doctorCheck) {
	missing := 0
	for _, c := range checks {
		mark, detail, remedy := t.paint(green, "✓"), diag.Printable(c.Detail), "to fix it: "
		switch {
		case c.OK:
		case c.Optional:
			mark, remedy = t.paint(yellow, "-"), "to install it: "
			detail = "not installed (most agents work without it): " + detail
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
		is := map[bool]string{true: "is", false: "are"}[missing == 1]
		t.printf("%s\n", t.paint(boldRed, count(missing, "thing")+" that agents need "+is+" missing"))
		return
	}
	t.printf("%s\n", t.paint(green, "everything that agents need is installed"))
}
