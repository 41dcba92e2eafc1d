package pack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// npmArchive is the file name of the package's archive in the npm project.
const npmArchive = "package.tgz"

// npmDependency is the entry of one package in npm's own lock file. It contains only the fields that affect the
// installation.
type npmDependency struct {
	Name                 string            `json:"name,omitempty"`
	Version              string            `json:"version"`
	Resolved             string            `json:"resolved,omitempty"` // this field is always empty in ambit's lists
	Integrity            string            `json:"integrity,omitempty"`
	InBundle             bool              `json:"inBundle,omitempty"`
	HasInstallScript     bool              `json:"hasInstallScript,omitempty"`
	Optional             bool              `json:"optional,omitempty"`
	Peer                 bool              `json:"peer,omitempty"`
	DevOptional          bool              `json:"devOptional,omitempty"`
	Dependencies         map[string]string `json:"dependencies,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
	PeerDependencies     map[string]string `json:"peerDependencies,omitempty"`
	// The JSON type of these fields varies, so ambit keeps their JSON text.
	PeerDependenciesMeta json.RawMessage `json:"peerDependenciesMeta,omitempty"`
	BundleDependencies   json.RawMessage `json:"bundleDependencies,omitempty"`
	Bin                  json.RawMessage `json:"bin,omitempty"`
	OS                   json.RawMessage `json:"os,omitempty"`
	CPU                  json.RawMessage `json:"cpu,omitempty"`
	Libc                 json.RawMessage `json:"libc,omitempty"`
}

type npmPackages struct {
	Name            string                   `json:"name"`
	LockfileVersion int                      `json:"lockfileVersion"`
	Requires        bool                     `json:"requires"`
	Packages        map[string]npmDependency `json:"packages"`
}

const npmProjectName = "ambit-package"

func npmManifest(name string) map[string]any {
	return map[string]any{
		"name": npmProjectName, "version": "1.0.0", "private": true,
		"dependencies": map[string]string{name: "file:" + npmArchive},
	}
}

// npmDependencies extracts the list of dependencies from npm's own lock file, in canonical form. Every dependency
// must have a hash and come from the registry.
func npmDependencies(name string, lock []byte) ([]byte, error) {
	var all npmPackages
	if err := json.Unmarshal(lock, &all); err != nil || all.LockfileVersion < 2 {
		return nil, fail(FetchFailed, name, "npm wrote a lock file that cannot be read", "use npm 9 or newer", err)
	}
	delete(all.Packages, "")
	self := "node_modules/" + name
	for key, d := range all.Packages {
		if key == self && d.Resolved == "file:"+npmArchive {
			d.Resolved = ""
		}
		if err := d.check(key); err != nil {
			return nil, err
		}
		all.Packages[key] = d
	}
	if _, ok := all.Packages[self]; !ok {
		return nil, fail(FetchFailed, name, "npm did not install the package", "check that npm works outside ambit", nil)
	}
	b, err := json.Marshal(all.Packages)
	if err != nil {
		return nil, err
	}
	return canonical(b)
}

// check returns an error if the dependency cannot be pinned.
func (d npmDependency) check(key string) error {
	switch {
	case !strings.HasPrefix(key, "node_modules/") || strings.Contains("/"+key+"/", "/../"):
		return unsafePackage(diag.Quote(key), "is a dependency outside node_modules")
	case d.Resolved != "":
		return unsafePackage(diag.Quote(key), "is a dependency that does not come from the registry")
	case !strings.HasPrefix(d.Integrity, "sha512-") && !d.InBundle:
		return unsafePackage(diag.Quote(key), "is a dependency without a sha512 hash")
	}
	return nil
}

// npmLockfile converts a list of dependencies to npm's own lock file format. It checks the list again, because the
// list comes from ambit.lock, which people edit and merge.
func npmLockfile(name string, list []byte) (*npmPackages, error) {
	var deps map[string]npmDependency
	dec := json.NewDecoder(bytes.NewReader(list))
	dec.DisallowUnknownFields()
	bad := func(detail string, err error) error {
		return fail(LockInvalid, name, detail, "lock the package again", err, updateCommand)
	}
	if err := dec.Decode(&deps); err != nil {
		return nil, bad("the list of dependencies cannot be read", err)
	}
	self, ok := deps["node_modules/"+name]
	if !ok {
		return nil, bad("the list of dependencies belongs to a different package", nil)
	}
	for key, d := range deps {
		if err := d.check(key); err != nil {
			return nil, bad("the list of dependencies cannot be used", err)
		}
	}
	// The archive was already compared with the pinned sha256.
	self.Resolved = "file:" + npmArchive
	deps["node_modules/"+name] = self
	lock := &npmPackages{Name: npmProjectName, LockfileVersion: 3, Requires: true, Packages: deps}
	deps[""] = npmDependency{
		Name: npmProjectName, Version: "1.0.0", Dependencies: map[string]string{name: "file:" + npmArchive},
	}
	return lock, nil
}

func anyNamed(deps map[string]npmDependency, name string) bool {
	for key, d := range deps {
		if d.Name == name || d.Name == "" && strings.HasSuffix(key, "node_modules/"+name) {
			return true
		}
	}
	return false
}

// ScriptsNotRun returns the names of the dependencies whose install scripts did not run. A package that needs such a
// script, for example to build a native module, does not start.
func (p *Package) ScriptsNotRun() (names []string) {
	var deps map[string]npmDependency
	if p.Kind != NPM || json.Unmarshal(p.Dependencies, &deps) != nil {
		return nil
	}
	for key, d := range deps {
		name := cmp.Or(d.Name, key[strings.LastIndex(key, "node_modules/")+len("node_modules/"):])
		if d.HasInstallScript && !slices.Contains(p.Scripts, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// canonical returns the canonical form (RFC 8785) of a JSON value.
func canonical(b []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(b))
	err := v.Canonicalize()
	return v, err
}
