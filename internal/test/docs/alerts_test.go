//go:build unix

package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/ambit-run/ambit/internal/serve/daemon"
)

// series is the kind and the labels of a metric.
type series struct {
	kind   string
	labels []string
}

// TestAlerts parses the alerts in docs/metrics.md as Prometheus would. It checks the file, and the syntax,
// metric names and labels of each expression. The package that defines the metrics checks the table on that
// page.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := documented(string(text))
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 || len(known) == 0 {
		t.Fatalf("the page has %d blocks of alerts and %d metrics", len(blocks), len(known))
	}
	if err := readAlerts(blocks[0][1], known); err != nil {
		t.Error(err)
	}
}

// TestBrokenAlerts checks that broken alerts are reported. Prometheus would refuse such an alert, or the
// alert would never fire.
func TestBrokenAlerts(t *testing.T) {
	known := documented("| `ambit_up` | gauge | | x |\n| `ambit_n` | gauge | `state` | x |\n| `ambit_c` | counter | `agent`, `result` | x |\n| `ambit_h` | histogram | | x |\n")
	const before = "groups:\n  - name: a\n    rules:\n      - alert: A\n        expr: "
	for _, c := range []struct{ name, text, want string }{
		{"a comparison", before + `min(ambit_up) == 0`, ""},
		{"every supported construct", before + `histogram_quantile(0.9, sum by (le) (rate(ambit_h_bucket[5m]))) > 1 + 2 * (ambit_up)`, ""},
		{"labels", before + `sum by (agent, result) (increase(ambit_c{result="failed",agent!~"x.*"}[1h])) > 0`, ""},

		{"not YAML", before + "min(ambit_up)\n      for: 1m", "yaml:"},
		{"unknown field", before + "min(ambit_up)\n        form: 1m", "field form not found"},
		{"two documents", before + "min(ambit_up)\n---\ngroups: []\n", "more than one document"},
		{"no alerts", "groups: []\n", "contains no alerts"},
		{"no rules", "groups:\n  - name: a\n", "no rules"},
		{"duplicate name", before + "min(ambit_up)\n      - alert: A\n        expr: min(ambit_up)", `the alert "A" is empty or a duplicate`},
		{"invalid duration", before + "min(ambit_up)\n        for: soon", `"soon" is not a duration`},
		{"no expression", before + `""`, `no metric or function ""`},
		{"unknown metric", before + `min(ambit_upp) == 0`, `function "ambit_upp"`},
		{"unknown function", before + `mean(ambit_up) == 0`, `function "mean"`},
		{"histogram without _bucket, _sum or _count", before + `min(ambit_h) == 0`, `function "ambit_h"`},
		{"missing bracket", before + `min(ambit_up == 0`, `got "", want ")"`},
		{"extra bracket", before + `min(ambit_up)) == 0`, `unexpected ")"`},
		{"crossed brackets", before + `min(ambit_n{state="ready")} == 0`, `got ")", want "}"`},
		{"missing operand", before + `min(ambit_up) ==`, `function ""`},
		{"single equals sign", before + `min(ambit_up) = 0`, `unexpected "="`},
		{"unknown label", before + `ambit_n{stat="ready"} > 0`, `has no label "stat"`},
		{"unknown value", before + `ambit_n{state=~"ready|quarantine"} > 0`, `state is never "quarantine"`},
		{"invalid pattern", before + `ambit_c{agent=~"("} > 0`, "missing closing )"},
		{"value without quotes", before + `ambit_n{state=ready} > 0`, "cannot read the matcher"},
		{"label removed by a sum", before + `sum by (agent) (sum by (result) (ambit_c)) > 0`, `no label "agent"`},
		{"missing range", before + `increase(ambit_c) > 0`, `got ")", want "["`},
		{"increase of a gauge", before + `increase(ambit_up[5m]) > 0`, "increase is for counters"},
		{"no buckets", before + `histogram_quantile(0.9, sum(rate(ambit_h_bucket[5m]))) > 1`, "no buckets"},
		{"unknown operator", before + `min(ambit_up) && 1`, "cannot read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := readAlerts([]byte(c.text), known)
			if c.want == "" && err != nil {
				t.Errorf("unexpected error: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got the error %v, want %s", err, c.want)
			}
		})
	}
}

// documented returns the metrics in the table of the page. A histogram has three series. Its series of buckets has the
// label le.
func documented(page string) map[string]series {
	known := map[string]series{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(ambit_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(page, -1) {
		s := series{kind: row[2], labels: strings.FieldsFunc(row[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })}
		if s.kind != "histogram" {
			known[row[1]] = s
			continue
		}
		s.kind = "counter"
		known[row[1]+"_sum"], known[row[1]+"_count"] = s, s
		known[row[1]+"_bucket"] = series{"counter", append(slices.Clone(s.labels), "le")}
	}
	return known
}

var period = regexp.MustCompile(`^([0-9]+(ms|[smhdwy]))+$`)

func readAlerts(text []byte, known map[string]series) error {
	var doc struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil {
		return err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("the file contains more than one document")
	}
	var problems []error
	var names []string
	for _, g := range doc.Groups {
		if g.Name == "" || len(g.Rules) == 0 {
			problems = append(problems, fmt.Errorf("the group %q has no name or no rules", g.Name))
		}
		for _, r := range g.Rules {
			if r.Alert == "" || slices.Contains(names, r.Alert) {
				problems = append(problems, fmt.Errorf("the name of the alert %q is empty or a duplicate", r.Alert))
			}
			names = append(names, r.Alert)
			if r.For != "" && !period.MatchString(r.For) {
				problems = append(problems, fmt.Errorf("%s: %q is not a duration", r.Alert, r.For))
			}
			if err := readPromQL(r.Expr, known); err != nil {
				problems = append(problems, fmt.Errorf("%s: %s: %w", r.Alert, r.Expr, err))
			}
		}
	}
	if len(names) == 0 {
		problems = append(problems, errors.New("the file contains no alerts"))
	}
	return errors.Join(problems...)
}

// promQL parses the part of the language that the alerts use: comparisons of numbers, and functions of series.
// Everything else is an error.
type promQL struct {
	tokens []string
	known  map[string]series
}

var (
	token      = regexp.MustCompile(`^(?:[A-Za-z_:][A-Za-z0-9_:]*|[0-9]+(?:ms|[smhdwy])|[0-9]+(?:\.[0-9]+)?|"[^"\\]*"|=~|!~|[=!<>]=|[-+*/<>=(){}\[\],])`)
	number     = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	label      = regexp.MustCompile(`^[a-z_]+$`)
	operators  = []string{"==", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/"}
	aggregates = []string{"sum", "min", "max", "avg", "count"}
)

// values lists all values of some labels. An alert about any other value would never fire.
var values = map[string][]string{
	"state":    {string(daemon.Starting), string(daemon.Ready), string(daemon.Quarantined), string(daemon.Failed), string(daemon.Rejected)},
	"result":   {"ok", "failed"},
	"decision": {"allow", "deny", "failed", "unknown"},
}

func readPromQL(expr string, known map[string]series) error {
	p := promQL{known: known}
	for rest := strings.TrimSpace(expr); rest != ""; rest = strings.TrimSpace(rest) {
		found := token.FindString(rest)
		if found == "" {
			return fmt.Errorf("cannot read %q", rest)
		}
		p.tokens, rest = append(p.tokens, found), rest[len(found):]
	}
	if _, err := p.expr(); err != nil {
		return err
	}
	if len(p.tokens) > 0 {
		return fmt.Errorf("unexpected %q", p.tokens[0])
	}
	return nil
}

// next returns the next token, or "" at the end.
func (p *promQL) next() string {
	if len(p.tokens) == 0 {
		return ""
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

// at consumes the next token and returns true if the token is t.
func (p *promQL) at(t string) bool {
	if len(p.tokens) == 0 || p.tokens[0] != t {
		return false
	}
	p.next()
	return true
}

func (p *promQL) want(t string) error {
	if got := p.next(); got != t {
		return fmt.Errorf("got %q, want %q", got, t)
	}
	return nil
}

// expr parses terms separated by operators, and returns the labels of the first term that has labels.
func (p *promQL) expr() ([]string, error) {
	labels, err := p.term()
	for err == nil && len(p.tokens) > 0 && slices.Contains(operators, p.tokens[0]) {
		p.next()
		var more []string
		if more, err = p.term(); labels == nil {
			labels = more
		}
	}
	return labels, err
}

func (p *promQL) term() ([]string, error) {
	switch t := p.next(); {
	case number.MatchString(t):
		return nil, nil
	case t == "(":
		return p.closed()
	case slices.Contains(aggregates, t):
		return p.aggregate()
	case t == "rate" || t == "increase":
		if err := p.want("("); err != nil {
			return nil, err
		}
		return p.window(t)
	case t == "histogram_quantile":
		return p.quantile()
	default:
		s, err := p.selector(t)
		return s.labels, err
	}
}

// closed parses an expression and its closing bracket.
func (p *promQL) closed() ([]string, error) {
	labels, err := p.expr()
	return labels, errors.Join(err, p.want(")"))
}

func (p *promQL) aggregate() ([]string, error) {
	var kept []string
	if p.at("by") {
		if err := p.want("("); err != nil {
			return nil, err
		}
		for {
			kept = append(kept, p.next())
			if !p.at(",") {
				break
			}
		}
		if err := p.want(")"); err != nil {
			return nil, err
		}
	}
	if err := p.want("("); err != nil {
		return nil, err
	}
	have, err := p.closed()
	for _, l := range kept {
		if !slices.Contains(have, l) {
			err = errors.Join(err, fmt.Errorf("no label %q", l))
		}
	}
	return kept, err
}

// window parses a counter over a duration.
func (p *promQL) window(function string) ([]string, error) {
	name := p.next()
	s, err := p.selector(name)
	if err != nil {
		return nil, err
	}
	if s.kind != "counter" {
		return nil, fmt.Errorf("%s is a %s, and %s is for counters", name, s.kind, function)
	}
	if err := p.want("["); err != nil {
		return nil, err
	}
	if t := p.next(); !period.MatchString(t) {
		return nil, fmt.Errorf("%q is not a duration", t)
	}
	return s.labels, errors.Join(p.want("]"), p.want(")"))
}

func (p *promQL) quantile() ([]string, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	if t := p.next(); !number.MatchString(t) {
		return nil, fmt.Errorf("%q is not a quantile", t)
	}
	if err := p.want(","); err != nil {
		return nil, err
	}
	labels, err := p.closed()
	if err == nil && !slices.Contains(labels, "le") {
		err = errors.New("no buckets: a quantile needs the label le")
	}
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == "le" }), err
}

// selector parses a series and its label matchers.
func (p *promQL) selector(name string) (series, error) {
	s, ok := p.known[name]
	if !ok {
		return s, fmt.Errorf("no metric or function %q", name)
	}
	if !p.at("{") {
		return s, nil
	}
	for {
		l, op, value := p.next(), p.next(), p.next()
		switch {
		case !label.MatchString(l) || !slices.Contains(s.labels, l):
			return s, fmt.Errorf("%s has no label %q", name, l)
		case !slices.Contains([]string{"=", "!=", "=~", "!~"}, op) || !strings.HasPrefix(value, `"`):
			return s, fmt.Errorf("cannot read the matcher of %s: %s %s", l, op, value)
		}
		wanted := []string{strings.Trim(value, `"`)}
		if op == "=~" || op == "!~" {
			if _, err := regexp.Compile(wanted[0]); err != nil {
				return s, err
			}
			wanted = strings.Split(wanted[0], "|")
		}
		for _, v := range wanted {
			if values[l] != nil && !slices.Contains(values[l], v) {
				return s, fmt.Errorf("%s is never %q", l, v)
			}
		}
		if !p.at(",") {
			return s, p.want("}")
		}
	}
}
