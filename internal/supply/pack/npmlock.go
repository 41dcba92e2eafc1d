package pack

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// npmArchive is the archive's file name in npm's project.
const npmArchive = "package.tgz"

// npmDependency is one package of an npm tree: its entry in npm's lock file, without
// descriptive fields and without its origin.
type npmDependency struct {
	Name                 string            `json:"name,omitempty"`
	Version              string            `json:"version"`
	Resolved             string            `json:"resolved,omitempty"` // never set in ambit's own lists
	Integrity            string            `json:"integrity,omitempty"`
	InBundle             bool              `json:"inBundle,omitempty"`
	HasInstallScript     bool              `json:"hasInstallScript,omitempty"`
	Optional             bool              `json:"optional,omitempty"`
	Peer                 bool              `json:"peer,omitempty"`
	DevOptional          bool              `json:"devOptional,omitempty"`
	Dependencies         map[string]string `json:"dependencies,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
	PeerDependencies     map[string]string `json:"peerDependencies,omitempty"`
	// Packages write these fields in several shapes; they are kept unchanged.
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

// npmDependencies extracts the list of dependencies from npm's lock file, in canonical
// form. Every dependency must have a hash and come from the registry.
func npmDependencies(name string, lock []byte) ([]byte, error) {
	var all npmPackages
	if err := json.Unmarshal(lock, &all); err != nil || all.LockfileVersion < 2 {
		return nil, &Error{Code: FetchFailed, What: name, Detail: "npm wrote a lock file that cannot be read", Err: err, Hint: "use npm 9 or newer"}
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
		return nil, &Error{Code: FetchFailed, What: name, Detail: "npm did not install it", Hint: "check that npm works on its own"}
	}
	b, err := json.Marshal(all.Packages)
	if err != nil {
		return nil, err
	}
	return canonical(b)
}

// check refuses a dependency that a lock cannot pin.
func (d npmDependency) check(key string) error {
	switch {
	case !strings.HasPrefix(key, "node_modules/") || strings.Contains("/"+key+"/", "/../"):
		return unsafePackage(diag.Quote(key), "is outside node_modules")
	case d.Resolved != "":
		return unsafePackage(diag.Quote(key), "comes from outside the registry")
	case !strings.HasPrefix(d.Integrity, "sha512-") && !d.InBundle:
		return unsafePackage(diag.Quote(key), "has no sha512")
	}
	return nil
}

// npmLockfile converts a list of dependencies to npm's lock file. The list comes from
// a file that people edit and merge.
func npmLockfile(name string, list []byte) (*npmPackages, error) {
	var deps map[string]npmDependency
	dec := json.NewDecoder(bytes.NewReader(list))
	dec.DisallowUnknownFields()
	bad := func(detail string, err error) error {
		return &Error{Code: LockInvalid, What: name, Detail: detail, Err: err, Hint: "lock it again", Command: updateCommand}
	}
	if err := dec.Decode(&deps); err != nil {
		return nil, bad("its list of dependencies cannot be read", err)
	}
	self, ok := deps["node_modules/"+name]
	if !ok {
		return nil, bad("its list of dependencies belongs to another package", nil)
	}
	for key, d := range deps {
		if err := d.check(key); err != nil {
			return nil, bad("its list of dependencies cannot be used", err)
		}
	}
	// ambit has already compared the archive with the pinned sha256.
	self.Resolved = "file:" + npmArchive
	deps["node_modules/"+name] = self
	lock := &npmPackages{Name: npmProjectName, LockfileVersion: 3, Requires: true, Packages: deps}
	deps[""] = npmDependency{
		Name: npmProjectName, Version: "1.0.0", Dependencies: map[string]string{name: "file:" + npmArchive},
	}
	return lock, nil
}

// anyNamed reports whether a tree contains a package of that name.
func anyNamed(deps map[string]npmDependency, name string) bool {
	for key, d := range deps {
		if d.Name == name || d.Name == "" && strings.HasSuffix(key, "node_modules/"+name) {
			return true
		}
	}
	return false
}

// canonical returns the RFC 8785 form of a JSON text.
func canonical(b []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(b))
	err := v.Canonicalize()
	return v, err
}
