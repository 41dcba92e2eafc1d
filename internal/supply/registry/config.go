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

// Host is how the registry of one host is reached. It is a table of config.toml:
//
//	[registry."registry.openmcp.org"]
//	url = "https://mcp.example.com"
//	namespace = "com.example"
type Host struct {
	URL string `toml:"url"`
	// Namespace is put in front of a name that has none.
	Namespace string `toml:"namespace"`
	// Private says that the registry is in the user's own network.
	Private bool `toml:"private"`
	// Packages are indexes of packages, besides the public ones, that npm and the
	// like are set up to ask on this machine.
	Packages []string `toml:"packages"`

	// configured says that the user wrote it.
	configured bool
}

// Settings are what the user says about one server:
//
//	[server."registry.openmcp.org/filesystem"]
//	work = "/home/me/project"
type Settings struct {
	// Work is the folder that {work} stands for.
	Work string `toml:"work"`
	// Args take the place of the server's own arguments.
	Args []string `toml:"args"`
	// Env are further variables; $env:NAME in a value is a credential.
	Env map[string]string `toml:"env"`
}

// Config is what config.toml says about registries and servers.
type Config struct {
	Hosts   map[string]Host
	Servers map[string]Settings
}

// The registries that are known without being configured.
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

// ReadConfig reads the tables of config.toml; a file that is not there has none.
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
		return fmt.Errorf("namespace is not one part of a name")
	}
	return nil
}
