package identity

import (
	"cmp"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Kind is how a principal was authenticated.
type Kind string

// The kinds.
const (
	// Local is the user of this process.
	Local Kind = "local"
	// ByKey is the holder of an API key.
	ByKey Kind = "key"
	// ByToken is a subject of the OpenID provider.
	ByToken Kind = "oidc"
)

// Principal is an authenticated caller with its rights.
type Principal struct {
	// Name appears in the journal and in policies.
	Name string
	Kind Kind
	// KeyID is the id of the API key, empty if there was none.
	KeyID string
	// Admin may use every agent and administer the daemon.
	Admin bool
	// Everywhere allows every agent. Otherwise only Agents are allowed.
	Everywhere bool
	Agents     []string
	// Until is the time its key or token expires; zero means never.
	Until time.Time
}

// MayUse reports whether the principal may use the agent of that name.
func (p *Principal) MayUse(agent string) bool {
	return p.Admin || p.Everywhere || slices.Contains(p.Agents, agent)
}

// SeesAll reports whether no agent is hidden from the principal.
func (p *Principal) SeesAll() bool { return p.Admin || p.Everywhere }

// localRealm is the suffix of the names of local users. No other principal may have it.
const localRealm = "@local"

// keyRealm is the prefix of the names of API keys without a principal.
const keyRealm = "key:"

// LocalName returns the name of the user of this process: <os user>@local.
func LocalName() string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" {
		name = os.Getenv("USER")
	}
	// On Windows the name is DOMAIN\user.
	name = name[strings.LastIndexByte(name, '\\')+1:]
	return cmp.Or(name, "unknown") + localRealm
}

// maxName bounds the name of a principal.
const maxName = 256

// ValidName reports whether a string can be a name: it is short, and has no spaces and no
// invisible or line-breaking characters.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxName && strings.IndexFunc(name, func(r rune) bool {
		return r == ' ' || r == utf8.RuneError || diag.Unseen(r)
	}) < 0
}

// reserved reports whether a name belongs to local users or to keys. No token may have such
// a name.
func reserved(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, localRealm) || strings.HasPrefix(name, keyRealm)
}
