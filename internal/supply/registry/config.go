package registry

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Host configures the registry of one host. It is a table of config.toml:
//
//	[registry."registry.openmcp.org"]
//	url = "https://mcp.example.com"
//	namespace = "com.example"
type Host struct {
	URL string `toml:"url"`
	// Namespace is the prefix of names that have none.
	Namespace string `toml:"namespace"`
	// Private allows a registry in the user's own network.
	Private bool `toml:"private"`
	// Packages are package indexes, besides the public ones, that npm and pip use on
	// this machine.
	Packages []string `toml:"packages"`

	// configured means that the user wrote this entry.
	configured bool
}

// Settings are the user's settings for one server:
//
//	[server."registry.openmcp.org/filesystem"]
//	work = "/home/me/project"
type Settings struct {
	// Work is the folder that replaces {work}.
	Work string `toml:"work"`
	// Args replace the server's own arguments.
	Args []string `toml:"args"`
	// Env are additional variables; $env:NAME in a value is a credential.
	Env map[string]string `toml:"env"`
}

// Config holds the tables of config.toml for registries and servers.
type Config struct {
	Hosts   map[string]Host
	Servers map[string]Settings
}

// The registries that need no configuration.
const (
	OpenMCP  = "registry.openmcp.org"
	Official = "registry.modelcontextprotocol.io"
)

func known() map[string]Host {
	return map[string]Host{
		OpenMCP:  {URL: "https://" + OpenMCP, Namespace: "org.openmcp"},
		Official: {URL: "https://" + Official},
	}
}

// ReadConfig reads the tables of config.toml; a missing file has none.
func ReadConfig(h home.Home) (Config, error) {
	file := h.Config()
	c := Config{Hosts: known(), Servers: map[string]Settings{}}
	hosts := map[string]Host{}
	if _, err := home.ReadTable(file, "registry", &hosts); err != nil {
		return c, err
	}
	if _, err := home.ReadTable(file, "server", &c.Servers); err != nil {
		return c, err
	}
	for name, host := range hosts {
		if err := host.check(); err != nil {
			return c, fmt.Errorf("%s: [registry.%s]: %w", file, diag.Quote(name), err)
		}
		host.URL = strings.TrimRight(host.URL, "/")
		host.configured = true
		c.Hosts[name] = host
	}
	for id, s := range c.Servers {
		if s.Work != "" && !filepath.IsAbs(s.Work) {
			return c, fmt.Errorf("%s: [server.%s]: work is not an absolute path", file, diag.Quote(id))
		}
	}
	return c, nil
}

func (h Host) check() error {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("url is not the address of a registry, such as https://registry.example.com")
	case u.Scheme == "https", u.Scheme == "http" && egress.IsLoopback(u.Hostname()):
	default:
		return fmt.Errorf("url must be https; http is for this machine only")
	}
	if strings.ContainsAny(h.Namespace, "/ \t") {
		return fmt.Errorf("namespace must not contain a slash")
	}
	return nil
}
