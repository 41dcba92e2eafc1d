package secret

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

//go:generate go run -C ../../../../bench/gitleaks .

//go:embed gitleaks.json.gz
var gitleaks []byte

// Rule describes one kind of secret.
type Rule struct {
	ID    string `json:"id"`
	Regex string `json:"regex"`
	// Group is the number of the capture group that contains the secret. If Group is 0, the secret is the first group that
	// matched any text.
	Group int `json:"group"`
	// Entropy is a lower bound in bits per byte. A match is a secret only if its entropy is higher.
	Entropy float64 `json:"entropy"`
	Allow   []Allow `json:"allow"`

	// precheck is an optional fast check that rejects most candidates before the expression is matched.
	precheck func(text []byte) bool
}

// Allow describes matches that are not secrets.
type Allow struct {
	// All selects how Regexes and StopWords are combined. If All is true, both lists must match, but an empty list is
	// ignored. If All is false, one matching list is enough.
	All bool `json:"all"`
	// Target selects the text that Regexes are matched against: "match" selects the whole match, "line" selects the line,
	// and any other value selects the secret.
	Target    string   `json:"target"`
	Regexes   []string `json:"regexes"`
	StopWords []string `json:"stop_words"`

	once  sync.Once
	regex *regexp.Regexp
	stop  *literal.Set
}

// rule is a Rule together with the data that the engine derives from it.
type rule struct {
	*Rule
	tree   *syntax.Regexp
	shapes []shape
	value  *value
	reach  int // the maximum length of a match; 0 if there is no limit
	pem    bool

	once     sync.Once
	anchored *regexp.Regexp
}

// regex returns the expression, anchored at the start of the text. It is compiled on first use.
func (r *rule) regex() *regexp.Regexp {
	r.once.Do(func() { r.anchored = regexp.MustCompile(`\A(?:` + r.tree.String() + `)`) })
	return r.anchored
}

// unpack reads the embedded gitleaks rules.
func unpack() (rules []*Rule, allow []Allow, err error) {
	z, err := gzip.NewReader(bytes.NewReader(gitleaks))
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, nil, err
	}
	var all struct {
		Allow []Allow `json:"allow"`
		Rules []*Rule `json:"rules"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, nil, err
	}
	return all.Rules, all.Allow, nil
}

// allows reports whether a match is on the allowlist and therefore not a secret.
func (a *Allow) allows(secret, match, line []byte) bool {
	a.once.Do(a.compile)
	target := secret
	switch a.Target {
	case "match":
		target = match
	case "line":
		target = line
	}
	regex := a.regex != nil && a.regex.Match(target)
	stop := a.stop != nil && a.stop.Contains(secret)
	if a.All {
		return (regex || a.regex == nil) && (stop || a.stop == nil)
	}
	return regex || stop
}

func (a *Allow) compile() {
	if len(a.Regexes) > 0 {
		parts := make([]string, len(a.Regexes))
		for i, r := range a.Regexes {
			parts[i] = "(?:" + r + ")"
		}
		a.regex = regexp.MustCompile(strings.Join(parts, "|"))
	}
	if len(a.StopWords) > 0 {
		set, err := literal.New(a.StopWords, math.MaxInt)
		if err != nil {
			panic(fmt.Sprintf("stop words: %v", err))
		}
		a.stop = set
	}
}

// entropy returns the Shannon entropy in bits per byte.
func entropy(b []byte) float64 {
	var count [256]int
	for _, c := range b {
		count[c]++
	}
	e, n := 0.0, float64(len(b))
	for _, k := range count {
		if k > 0 {
			f := float64(k) / n
			e -= f * math.Log2(f)
		}
	}
	return e
}
