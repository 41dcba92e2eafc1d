package pack

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// npmArchive is what the archive is called in npm's project.
const npmArchive = "package.tgz"

// npmDependency is one package of an npm tree: what npm's own lock file says of
// it, without what only people read and without where it came from.
type npmDependency struct {
	Name                 string            `json:"name,omitempty"`
	Version              string            `json:"version"`
	Resolved             string            `json:"resolved,omitempty"` // never in our own lists
	Integrity            string            `json:"integrity,omitempty"`
	InBundle             bool              `json:"inBundle,omitempty"`
	HasInstallScript     bool              `json:"hasInstallScript,omitempty"`
	Optional             bool              `json:"optional,omitempty"`
	Peer                 bool              `json:"peer,omitempty"`
	DevOptional          bool              `json:"devOptional,omitempty"`
	Dependencies         map[string]string `json:"dependencies,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
	PeerDependencies     map[string]string `json:"peerDependencies,omitempty"`
	// Authors write these in more than one shape; they are kept as they are.
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

// npmDependencies takes the list of dependencies from npm's lock file, in
// canonical form. Every one must be fixed by a hash and come from the registry.
func npmDependencies(name string, lock []byte) ([]byte, error) {
	var all npmPackages
	if err := json.Unmarshal(lock, &all); err != nil || all.LockfileVersion < 2 {
		return nil, &Error{Code: FetchFailed, What: name, Detail: "npm left a lock file that cannot be read", Err: err, Hint: "use npm 9 or newer"}
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
		return nil, &Error{Code: FetchFailed, What: name, Detail: "npm did not install it", Hint: "see whether npm works by itself"}
	}
	b, err := json.Marshal(all.Packages)
	if err != nil {
		return nil, err
	}
	return canonical(b)
}

// check holds one dependency to what a lock can promise.
func (d npmDependency) check(key string) error {
	switch {
	case !strings.HasPrefix(key, "node_modules/") || strings.Contains("/"+key+"/", "/../"):
		return unsafePackage(diag.Quote(key), "is outside node_modules")
	case d.Resolved != "":
		return unsafePackage(diag.Quote(key), "comes from outside the registry")
	case !strings.HasPrefix(d.Integrity, "sha512-") && !d.InBundle:
		return unsafePackage(diag.Quote(key), "is fixed by no sha512")
	}
	return nil
}

// npmLockfile makes npm's lock file of a list of dependencies, which comes from
// a file that people edit and merge.
func npmLockfile(name string, list []byte) (*npmPackages, error) {
	var deps map[string]npmDependency
	dec := json.NewDecoder(bytes.NewReader(list))
	dec.DisallowUnknownFields()
	bad := func(detail string, err error) error {
		return &Error{Code: LockInvalid, What: name, Detail: detail, Err: err, Hint: "lock it anew", Command: updateCommand}
	}
	if err := dec.Decode(&deps); err != nil {
		return nil, bad("its list of dependencies cannot be read", err)
	}
	self, ok := deps["node_modules/"+name]
	if !ok {
		return nil, bad("its list of dependencies is that of another package", nil)
	}
	for key, d := range deps {
		if err := d.check(key); err != nil {
			return nil, bad("its list of dependencies cannot be used", err)
		}
	}
	// The archive was hashed already, by us and with the sha256 that is pinned.
	self.Resolved = "file:" + npmArchive
	deps["node_modules/"+name] = self
	lock := &npmPackages{Name: npmProjectName, LockfileVersion: 3, Requires: true, Packages: deps}
	deps[""] = npmDependency{
		Name: npmProjectName, Version: "1.0.0", Dependencies: map[string]string{name: "file:" + npmArchive},
	}
	return lock, nil
}

// anyNamed reports whether a tree holds a package of that name.
func anyNamed(deps map[string]npmDependency, name string) bool {
	for key, d := range deps {
		if d.Name == name || d.Name == "" && strings.HasSuffix(key, "node_modules/"+name) {
			return true
		}
	}
	return false
}

// canonical is the RFC 8785 form of a JSON text.
func canonical(b []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(b))
	err := v.Canonicalize()
	return v, err
}
