package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Kind is the way in which a principal was authenticated.
type Kind string

// The ways to authenticate a principal.
const (
	// Local means that the principal is the user of this process.
	Local Kind = "local"
	// ByKey means that the principal presented an API key.
	ByKey Kind = "key"
	// ByToken means that the principal presented a token from the OpenID provider.
	ByToken Kind = "oidc"
)

// Principal describes an authenticated caller and the caller's rights.
type Principal struct {
	// Name is the principal's name in the journal and in policies.
	Name string
	Kind Kind
	// KeyID is the id of the API key that the principal presented, or "".
	KeyID string
	// Admin allows the principal to use every agent and to administer the daemon.
	Admin bool
	// Everywhere allows the principal to use every agent. If neither Admin nor Everywhere is set, the principal can use
	// only the agents in Agents.
	Everywhere bool
	Agents     []string
	// For Issuer, Groups, ACR and AMR, see [Attributes].
	Issuer string   `json:",omitempty"`
	Groups []string `json:",omitempty"`
	ACR    string   `json:",omitempty"`
	AMR    []string `json:",omitempty"`
	// Until is the time when the key or token expires. The zero time means never.
	Until time.Time
}

// MayUse reports whether the principal can use the agent with the given name.
func (p *Principal) MayUse(agent string) bool {
	return p.Admin || p.Everywhere || slices.Contains(p.Agents, agent)
}

// SeesAll reports whether the principal can use every agent.
func (p *Principal) SeesAll() bool { return p.Admin || p.Everywhere }

// localRealm is the suffix of the names of local users. A token is rejected if its principal name has this suffix.
const localRealm = "@local"

// keyRealm is the prefix of default principal names. The default name of an API key is keyRealm followed by the key's
// id.
const keyRealm = "key:"

// LocalName returns the principal name of the current user: <os user>@local.
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

// maxName is the maximum length of a principal's name, in bytes.
const maxName = 256

// ValidName reports whether name can be the name of a principal. A name has 1 to maxName bytes. It contains no spaces
// and no invisible or line-breaking characters.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxName && strings.IndexFunc(name, func(r rune) bool {
		return r == ' ' || r == utf8.RuneError || diag.Unseen(r)
	}) < 0
}

// ValidGroup reports whether name can be the name of a group in policy rules. Unlike the name of a principal, it may
// contain spaces.
func ValidGroup(name string) bool {
	return strings.TrimSpace(name) == name && ValidName(strings.ReplaceAll(name, " ", "_"))
}

// reserved reports whether name has the form of a local user's name or an API key's name. Tokens with such a name are
// rejected.
func reserved(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, localRealm) || strings.HasPrefix(name, keyRealm)
}

// ErrNotOwner means that the root key file belongs to another user.
var ErrNotOwner = errors.New("the file belongs to another user")

// CheckOwner returns an error if the current user does not own the root key file. Permission to read the file is not
// enough. Even the superuser must first take ownership of the file. A missing file is accepted, because the user who
// creates the file will own it.
func CheckOwner(root string) error {
	info, err := os.Stat(root) // follows links
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot check who owns the root key: %w", err)
	}
	mine, err := owned(root, info)
	switch {
	case err != nil:
		return fmt.Errorf("cannot check who owns the root key: %w", err)
	case !mine:
		return fmt.Errorf("the root key %s: %w", root, ErrNotOwner)
	}
	return nil
}
