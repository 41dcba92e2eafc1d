package identity

import (
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Kind is how a principal was known.
type Kind string

// The kinds.
const (
	// Local is the person whose process this is.
	Local Kind = "local"
	// ByKey is whoever holds an API key.
	ByKey Kind = "key"
	// ByToken is a subject of the OpenID provider.
	ByToken Kind = "oidc"
)

// Principal is who calls, and what it may reach. It says nothing of what an
// agent claims about itself.
type Principal struct {
	// Name stands in the journal and in policies.
	Name string
	Kind Kind
	// KeyID is the id of the API key, empty if there was none.
	KeyID string
	// Admin may do everything; it also runs the daemon.
	Admin bool
	// Everywhere says that it may use every agent, otherwise only Agents.
	Everywhere bool
	Agents     []string
	// Until is when what it showed ends; zero is never.
	Until time.Time
}

// MayUse reports whether the principal may use the agent of that name.
func (p *Principal) MayUse(agent string) bool {
	return p.Admin || p.Everywhere || slices.Contains(p.Agents, agent)
}

// SeesAll reports whether no agent is hidden from the principal.
func (p *Principal) SeesAll() bool { return p.Admin || p.Everywhere }

// localRealm ends the names of local users. Nobody else may have such a name.
const localRealm = "@local"

// keyRealm begins the names of keys that were made for nobody in particular.
const keyRealm = "key:"

// LocalName is the name of the person whose process this is: <os user>@local.
func LocalName() string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" {
		name = os.Getenv("USER")
	}
	// Windows has DOMAIN\user.
	name = name[strings.LastIndexByte(name, '\\')+1:]
	if name == "" {
		name = "unknown"
	}
	return name + localRealm
}

// maxName bounds the name of a principal.
const maxName = 256

// ValidName reports whether a text can be a name: short, and without
// characters that hide or break a line.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxName && strings.IndexFunc(name, func(r rune) bool {
		return r == ' ' || r == utf8.RuneError || diag.Unseen(r)
	}) < 0
}

// reserved reports whether a name belongs to this machine or to keys, so that
// no provider of tokens may give it away.
func reserved(name string) bool {
	return strings.HasSuffix(strings.ToLower(name), localRealm) || strings.HasPrefix(strings.ToLower(name), keyRealm)
}
