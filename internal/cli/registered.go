package cli

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/bundle"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

// registered returns the name under which an agent acts: the name of its file, as on a
// daemon, and never a name from inside the manifest. A different file with the name of an
// installed agent acts under its full path: it must not get the installed agent's grants.
func registered(h home.Home, m *manifest.Manifest) string {
	if m.Path == stdinName {
		return "stdin"
	}
	path, err := filepath.Abs(m.Path)
	if err != nil {
		return m.Path
	}
	folder, base := filepath.Split(path)
	folder = filepath.Clean(folder)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if alwaysManifest(base) {
		if name = filepath.Base(folder); folder == filepath.Clean(h.Agents()) {
			return agent.Slug(m.Agent().Name)
		}
	}
	theirs := installedAs(h, name)
	if theirs == "" || theirs == path {
		return name
	}
	if other, err := manifest.Load(theirs, manifest.Options{}); err == nil && other.Digest() == m.Digest() {
		return name
	}
	return path
}

// registeredBundle is registered for a bundle. An archive acts under the name of its file,
// or under its full path if an installed agent has that name.
func registeredBundle(h home.Home, path string, m *manifest.Manifest) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() || filepath.Base(path) == bundle.ManifestName {
		return registered(h, m)
	}
	base := filepath.Base(path)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if installedAs(h, name) == "" {
		return name
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// policyOptions returns the files of a home's rules and the catalogue that maps scopes.
func policyOptions(h home.Home) policy.Options {
	return policy.Options{
		File: h.Policy(), Config: h.Config(), CatalogueFile: catalog.File(h),
		Catalogue: func() (policy.Catalogue, error) { return catalog.Open(h) },
		Work:      func(agent string) string { return catalog.Work(h, agent) },
	}
}

// rules returns the user's policy. All checks of a process share it.
func (t *terminal) rules(h home.Home) *policy.Live {
	if t.policy == nil {
		o := policyOptions(h)
		o.Glance = 2 * time.Millisecond
		o.Log = func(message string) { t.serverLog("policy", message) }
		t.policy = policy.Open(o)
	}
	return t.policy
}

// policyTrouble warns that the rules in force are not those of the policy file.
func (t *terminal) policyTrouble(problem string) {
	if problem != "" {
		t.alertf("the policy file is not in force: %s", diag.Printable(problem))
	}
}
