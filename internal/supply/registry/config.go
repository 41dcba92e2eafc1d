package registry

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Host configures the registry of one host. It is a table in config.toml:
//
//	[registry."registry.openmcp.org"]
//	url = "https://mcp.example.com"
//	namespace = "com.example"
type Host struct {
	URL string `toml:"url"`
	// Namespace is added to server names that have no namespace.
	Namespace string `toml:"namespace"`
	// Private means that the registry is allowed to be in a private network.
	Private bool `toml:"private"`
	// Packages lists the URLs of the package indexes that npm and pip use on this machine in addition to the public
	// indexes.
	Packages []string `toml:"packages"`

	// configured is true if the entry comes from config.toml.
	configured bool
}

// Settings contains the user's settings for one server:
//
//	[server."registry.openmcp.org/filesystem"]
//	work = "/home/me/project"
type Settings struct {
	// Work is the path of the work folder. This path replaces {work} in arguments and variables.
	Work string `toml:"work"`
	// Args replaces the server's default arguments.
	Args []string `toml:"args"`
	// Env contains additional environment variables. $env:NAME in a value refers to a credential.
	Env map[string]string `toml:"env"`
}

// Config contains the tables of config.toml for registries and servers.
type Config struct {
	Hosts   map[string]Host
	Servers map[string]Settings
}

// These are the hosts of the registries that need no configuration.
const (
	OpenMCP  = "registry.openmcp.org"
	Official = "registry.modelcontextprotocol.io"
)

// hostOf returns the host of the registry that lists the server with the given id. The host is the first part of the
// id. An id without a host, such as io.github.owner/name, is a name in the official registry.
func (c Config) hostOf(id string) string {
	host, name, _ := strings.Cut(id, "/")
	if _, ok := c.Hosts[host]; !ok && !strings.Contains(name, "/") && isNamespace(host) {
		return Official
	}
	return host
}

// isNamespace reports whether a text is a domain in reverse order. It returns false for a text that could also be a
// domain in the usual order. This domain can have a different owner, who could then provide the server.
func isNamespace(text string) bool {
	labels := strings.Split(text, ".")
	return len(labels) > 1 && isTopLevel(labels[0]) &&
		(strings.HasPrefix(text, "io.github.") || !isTopLevel(labels[len(labels)-1]))
}

func isTopLevel(label string) bool {
	suffix, icann := publicsuffix.PublicSuffix(label)
	return icann && suffix == label
}

func known() map[string]Host {
	return map[string]Host{
		OpenMCP:  {URL: "https://" + OpenMCP, Namespace: "org.openmcp"},
		Official: {URL: "https://" + Official},
	}
}

// ReadConfig reads the [registry] and [server] tables of config.toml. A missing file is treated as empty.
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
			return c, fmt.Errorf("%s: [server.%s]: \"work\" must be an absolute path", file, diag.Quote(id))
		}
	}
	return c, nil
}

func (h Host) check() error {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("\"url\" is not a valid address; write an address such as https://registry.example.com")
	case u.Scheme == "https", u.Scheme == "http" && egress.IsLoopback(u.Hostname()):
	default:
		return fmt.Errorf("\"url\" must begin with https://; http:// is allowed only for loopback addresses")
	}
	if strings.ContainsAny(h.Namespace, "/ \t") {
		return fmt.Errorf("\"namespace\" must not contain a slash, a space or a tab")
	}
	return nil
}
