package pack

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Pin is the version and the digest to write into a manifest for one server. If a field is empty, the value in the
// manifest stays unchanged.
type Pin struct {
	Alias   string
	Version string
	Digest  string
}

// SetDigests writes pins into a Matrix manifest. For each pin, it sets package_digest and version, and the version in
// args if there is one. The rest of the manifest stays unchanged, byte for byte.
func SetDigests(manifest []byte, pins []Pin) ([]byte, error) {
	unfit := func(what, detail, hint string) error {
		return fail(ManifestUnfit, what, detail, hint, nil)
	}
	var m struct {
		Servers []struct {
			Alias   string   `json:"alias"`
			Command string   `json:"command"`
			Args    []string `json:"args"`
			Version *string  `json:"version"`
			Digest  *string  `json:"package_digest"`
		} `json:"servers"`
	}
	body := bytes.TrimPrefix(manifest, []byte("\uFEFF"))
	var root hujson.Value
	err := json.Unmarshal(body, &m) // Unmarshal limits the nesting depth
	if err == nil {
		root, err = hujson.Parse(body)
	}
	if err != nil {
		return nil, unfit("", "the manifest is not valid JSON in UTF-8", "to list the problems, run: ambit validate")
	}
	servers := map[string]int{}
	for i, s := range m.Servers {
		if _, twice := servers[s.Alias]; twice {
			return nil, unfit(diag.Quote(s.Alias), "two servers have this alias", "give each server a different alias")
		}
		servers[s.Alias] = i
	}
	for _, p := range pins {
		i, ok := servers[p.Alias]
		if !ok {
			return nil, unfit(diag.Quote(p.Alias), "the manifest has no server with this alias", "")
		}
		s := m.Servers[i]
		missing := func(key string) error {
			return unfit(diag.Quote(p.Alias), diag.Quote(key)+" is missing", "add "+diag.Quote(key)+" to the server")
		}
		set := func(field, old, value string) {
			if old != value {
				root.Find(fmt.Sprintf("/servers/%d/%s", i, field)).Value = hujson.String(value)
			}
		}
		if p.Digest != "" {
			if s.Digest == nil {
				return nil, missing("package_digest")
			}
			set("package_digest", *s.Digest, p.Digest)
		}
		if p.Version == "" {
			continue
		}
		if s.Version == nil {
			return nil, missing("version")
		}
		set("version", *s.Version, p.Version)
		ref, err := Identify(agent.Server{Transport: agent.Stdio, Command: s.Command, Args: s.Args})
		if err == nil && ref.Asked != "" {
			arg := s.Args[ref.spec]
			set(fmt.Sprintf("args/%d", ref.spec), arg, strings.TrimSuffix(arg, ref.Asked)+p.Version)
		}
	}
	return slices.Concat(manifest[:len(manifest)-len(body)], root.Pack()), nil
}
