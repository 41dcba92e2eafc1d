package policy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
)

// Options say where rules come from.
type Options struct {
	// File holds the rules, Config the user's map of scopes.
	File, Config string
	// Catalogue reads what maps the scopes that the user does not, and
	// CatalogueFile is where that can change; nil maps none.
	Catalogue     func() (Catalogue, error)
	CatalogueFile string
	// Work is the folder that the servers of a GPARS agent work in, where config.toml
	// gives a server no other; nil if that is not known.
	Work func(agent string) string
	// Log is told when rules were read, and when they could not be.
	Log func(message string)
	// Now is the time that rules see; nil means the clock.
	Now func() time.Time
	// Glance is how long one look at the files is good for; 0 looks at every
	// decision. Under load those come faster than people change their minds.
	Glance time.Duration
}

// Live is the user's policy as it stands in its file at any moment. It is a
// [gate.Policy].
//
// A new file is taken as a whole or not at all. One that was moved into place is
// taken at once; one that is being written where it stands is left alone until
// the writing has paused, since half a file can be valid and mean less. A file
// that cannot be used leaves the last good rules in force. One that vanished
// leaves their forbids: neither losing it nor deleting it opens anything.
type Live struct {
	options Options
	current atomic.Pointer[snapshot]
	turn    chan struct{} // taken while files are looked at and read
	rules   source
	others  []source // what maps scopes
	opened  time.Time
	looked  atomic.Int64 // when the last look at the files began that has ended, since opened
}

// snapshot is what is in force. It does not change, apart from what it remembers.
type snapshot struct {
	rules     *Rules // nil if there are none
	scopes    Scopes
	works     map[string]string // where servers work, as the user has it
	work      func(agent string) string
	catalogue Catalogue
	// problem is why the file as it is now is not in force; shut says that
	// nothing is, so that everything is refused.
	problem error
	shut    bool
	loaded  time.Time

	views sync.Map // viewKey → *view
	count atomic.Int64
}

// Status is how the policy is.
type Status struct {
	File   string    `json:"file"`
	Rules  int       `json:"rules"`
	Loaded time.Time `json:"loaded"`
	// Problem is why the file as it is now is not in force; empty if it is.
	Problem string `json:"problem"`
}

var _ gate.Policy = (*Live)(nil)

// Open reads the policy. It always gives one: if the file cannot be used, one
// that refuses everything until it can.
func Open(o Options) *Live {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Live{options: o, turn: make(chan struct{}, 1), opened: time.Now(), rules: source{path: o.File}}
	for _, path := range []string{o.Config, o.CatalogueFile} {
		if path != "" {
			l.others = append(l.others, source{path: path})
		}
	}
	l.now()
	return l
}

// Status tells how the policy is now.
func (l *Live) Status() Status {
	s := l.now()
	status := Status{File: l.options.File, Loaded: s.loaded}
	if s.rules != nil {
		status.Rules = s.rules.Len()
	}
	if s.problem != nil {
		status.Problem = s.problem.Error()
	}
	return status
}

// now is what is in force, whatever it takes to find out.
func (l *Live) now() *snapshot {
	s, _ := l.refresh(context.Background()) // which does not end
	return s
}

// refresh takes what changed in the files, and gives what is in force. While
// somebody reads a change, others wait for it: what was revoked before they asked
// does not count any more. The error is that of ctx.
func (l *Live) refresh(ctx context.Context) (*snapshot, error) {
	asked := time.Since(l.opened)
	known := func() *snapshot {
		if asked-time.Duration(l.looked.Load()) < l.options.Glance {
			return l.current.Load()
		}
		return nil
	}
	if s := known(); s != nil {
		return s, nil
	}
	select {
	case l.turn <- struct{}{}:
	default:
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-l.turn }()
	if s := known(); s != nil {
		return s, nil // somebody has just looked
	}
	began := time.Since(l.opened)
	was := l.current.Load()
	if was == nil || l.changed() {
		next := l.next(was)
		l.current.Store(next)
		l.tell(was, next)
		was = next
	}
	l.looked.Store(int64(began))
	return was, nil
}

func (l *Live) changed() bool {
	changed := l.rules.changed()
	for i := range l.others {
		changed = l.others[i].changed() || changed
	}
	return changed
}

// next is what comes into force after a change.
func (l *Live) next(was *snapshot) *snapshot {
	now := &snapshot{loaded: time.Now(), work: l.options.Work}
	text, there, err := l.rules.read()
	if err == nil && there {
		now.rules, err = Parse(l.options.File, text)
	}
	for i := range l.others {
		_, _, failed := l.others[i].read()
		err = cmp.Or(err, failed)
	}
	if err == nil {
		now.scopes, err = ReadScopes(l.options.Config)
	}
	if err == nil {
		now.works, err = readWorks(l.options.Config)
	}
	if err == nil && l.options.Catalogue != nil {
		now.catalogue, err = l.options.Catalogue()
	}
	switch {
	case err != nil && (was == nil || was.shut):
		now.rules, now.problem, now.shut = nil, err, true
	case err != nil:
		now.rules, now.scopes, now.works, now.catalogue, now.loaded, now.problem = was.rules, was.scopes, was.works, was.catalogue, was.loaded, err
	case !there && was != nil && was.rules != nil:
		now.rules, now.loaded = was.rules.withoutPermits(), was.loaded
		now.problem = fmt.Errorf("%s is gone: what it forbade stays forbidden, and nothing is permitted", l.options.File)
	}
	return now
}

// tell says what changed, loudly if it is bad.
func (l *Live) tell(was, now *snapshot) {
	if was != nil && was.problem != nil && now.problem != nil && was.problem.Error() == now.problem.Error() {
		return // it was said
	}
	switch {
	case now.shut:
		l.options.Log(fmt.Sprintf("THE POLICY CANNOT BE USED, and every call is refused: %v", now.problem))
	case now.problem != nil:
		l.options.Log(fmt.Sprintf("THE POLICY CHANGED AND CANNOT BE USED; the last good rules stay in force: %v", now.problem))
	case was != nil:
		rules := 0
		if now.rules != nil {
			rules = now.rules.Len()
		}
		l.options.Log(fmt.Sprintf("the policy was read again: %s in force", counted(rules)))
	}
}

// source is a file that may change.
type source struct {
	path string
	seen fs.FileInfo // nil if it was not there
	err  error       // why it could not be looked at
	// young says that the file was read so soon after it was written that its
	// times would not show another change.
	young bool
	text  []byte
}

// The times of a file: it counts as written when it has not changed for settled,
// and its times can be trusted after trusted.
const (
	settled = 100 * time.Millisecond
	trusted = time.Second
)

// changed reports whether the file is another than was read, and can be read now.
func (s *source) changed() bool {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.seen != nil || s.err != nil
	case err != nil:
		return s.err == nil || s.err.Error() != err.Error()
	case s.seen == nil:
		return true
	}
	same := os.SameFile(s.seen, info) && s.seen.Mode().Type() == info.Mode().Type()
	if same && info.Size() == s.seen.Size() && info.ModTime().Equal(s.seen.ModTime()) {
		return s.young && s.differs()
	}
	age := time.Since(info.ModTime())
	return !same || age < 0 || age >= settled
}

// differs reads a file whose times say nothing.
func (s *source) differs() bool {
	var text []byte
	f, err := os.Open(s.path)
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
		_ = f.Close()
	}
	if err == nil && bytes.Equal(text, s.text) {
		s.young = time.Since(s.seen.ModTime()) < trusted
		return false
	}
	return true
}

// read reads the file, and remembers which it was.
func (s *source) read() (text []byte, there bool, err error) {
	*s = source{path: s.path}
	defer func() { s.err, s.text = err, text }()
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if s.seen = info; !info.Mode().IsRegular() {
		return nil, false, fmt.Errorf("%s is not a regular file", s.path)
	}
	s.young = time.Since(info.ModTime()) < trusted
	text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	return text, err == nil, err
}

// viewKey is all of a call that its view depends on.
type viewKey struct {
	subject
	asked string // the manifest's digest: the hint names a scope that it asks for
}

// maxViews bounds what a snapshot remembers.
const maxViews = 10_000

// Judge says what the user's rules say of a call.
func (l *Live) Judge(ctx context.Context, a *agent.Agent, name string, t *agent.Tool, c *call.Call) []call.Reason {
	s, err := l.refresh(ctx)
	if err != nil {
		return []call.Reason{no(call.PolicyDenied, "the policy has changed, and is still being read: %v", err)}
	}
	return s.judge(l.options, a, name, t, c)
}

func (s *snapshot) view(a *agent.Agent, on subject) *view {
	key := viewKey{subject: on, asked: a.Digest}
	if v, ok := s.views.Load(key); ok {
		return v.(*view)
	}
	scopes := s.scopes.covering(s.catalogue, on.server, on.tool)
	v := s.rules.view(on, scopes)
	v.base = s.base(on)
	v.unpermitted = fmt.Sprintf("no rule of %s permits %s to call %s", s.rules.short(), v.principal, v.resource)
	v.covered = s.scopes.explain(s.catalogue, scopes, on.server, on.tool)
	v.hint = grantHint(a, on, scopes)
	if s.count.Add(1) <= maxViews {
		s.views.Store(key, v)
	}
	return v
}

// grantHint is how to grant what a call needs; empty if that cannot be said in a line
// that people copy: no name is in one that a shell would read otherwise.
func grantHint(a *agent.Agent, on subject, scopes []string) string {
	switch scope := wanted(a, on.server, scopes); {
	case scope != "" && plainWord(on.agent) && plainWord(on.server) && plainWord(scope):
		return fmt.Sprintf("grant it: ambit grant %s --server %s --scope %s", on.agent, on.server, scope)
	case len(scopes) == 0 && plainWord(on.server) && plainWord(on.tool):
		return fmt.Sprintf("map a scope to it in config.toml: [scopes.%q] SCOPE = [%q], then grant that", on.server, on.tool)
	}
	return ""
}

// base is the folder that a server reads relative paths from; empty if that is not
// known.
func (s *snapshot) base(on subject) string {
	switch {
	case on.dialect != string(agent.GPARS):
		return ""
	case s.works[on.server] != "":
		return s.works[on.server]
	case s.work != nil:
		return s.work(on.agent)
	}
	return ""
}

// wanted is the one of some scopes to grant: one that the agent asks for, if it does.
func wanted(a *agent.Agent, server string, scopes []string) string {
	for i := range a.Requirements {
		if q := &a.Requirements[i]; q.Server == server {
			for _, scope := range q.Scopes {
				if slices.Contains(scopes, scope) {
					return scope
				}
			}
		}
	}
	if len(scopes) == 0 {
		return ""
	}
	return scopes[0]
}

func plainWord(s string) bool {
	return s != "" && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@:./-_", r)
	}) < 0
}

// ServerOf is the server that a tool's name in Cedar begins with.
func ServerOf(name string, t *agent.Tool) string {
	switch b := t.Binding.(type) {
	case agent.OnServer:
		return b.Alias
	case agent.Native:
		return b.Namespace
	}
	return name
}

func (s *snapshot) judge(o Options, a *agent.Agent, name string, t *agent.Tool, c *call.Call) []call.Reason {
	asksPermit := a.Dialect == agent.GPARS
	file := o.File
	switch {
	case s.shut:
		return []call.Reason{no(call.PolicyDenied, "the policy cannot be used, so nothing is allowed: %v", s.problem)}
	case s.rules == nil && !asksPermit:
		return nil
	case s.rules == nil:
		r := no(call.ScopeNotGranted, "there is no policy at %s, so nothing is granted", file)
		on := subjectOf(a, name, t)
		r.Hint = grantHint(a, on, s.scopes.covering(s.catalogue, on.server, on.tool))
		return []call.Reason{r}
	}
	on := subjectOf(a, name, t)
	v := s.view(a, on)
	m := moment{caller: c.Principal, sideEffect: on.sideEffect, time: o.Now(), annotations: t.Annotations}
	if c.Skill != nil {
		m.skill = c.Skill.Name()
	}
	reasons := s.trouble()
	if len(v.rules) > 0 {
		found, err := s.rules.decide(v, m, c.Arguments)
		if err != nil {
			return append(reasons, no(call.PolicyDenied, "%v", err))
		}
		reasons = append(reasons, s.rules.forbidden(found)...)
		if asksPermit {
			return v.permitted(reasons, &found)
		}
	} else if asksPermit {
		return v.permitted(reasons, &verdict{})
	}
	if len(reasons) == 0 {
		reasons = append(reasons, yes("no rule of %s forbids it", s.rules.short()))
	}
	return reasons
}

// trouble tells whoever asks that the rules are not those of the file.
func (s *snapshot) trouble() []call.Reason {
	if s.problem == nil {
		return nil
	}
	return []call.Reason{yes("the last good rules are in force, since the policy cannot be used: %v", s.problem)}
}

// forbidden is every reason why rules forbid a call.
func (r *Rules) forbidden(found verdict) []call.Reason {
	var reasons []call.Reason
	for _, f := range found.broken {
		reasons = append(reasons, no(call.PolicyDenied, "%s of %s could not be evaluated, which counts as a match: %s", f.rule, r.short(), f.why))
	}
	for _, one := range found.forbids {
		reasons = append(reasons, no(call.PolicyDenied, "%s of %s forbids it", one, r.short()))
	}
	return reasons
}

// maxPermits is how many rules are named that permit a call. One is enough; whoever
// forbids is always named.
const maxPermits = 20

// permitted adds why rules permit a call, or that none does.
func (v *view) permitted(reasons []call.Reason, found *verdict) []call.Reason {
	named := found.permits[:min(len(found.permits), maxPermits)]
	reasons = slices.Grow(reasons, 2+len(named))
	reasons = append(reasons, call.Reason{Stage: gate.Stage, Allowed: true, Detail: v.covered})
	for _, one := range named {
		reasons = append(reasons, call.Reason{Stage: gate.Stage, Allowed: true, Detail: one.permits})
	}
	if more := len(found.permits) - len(named); more > 0 {
		reasons = append(reasons, yes("%d more rules permit it", more))
	}
	if len(found.permits) > 0 || found.denies() {
		return reasons
	}
	detail := v.unpermitted
	for _, f := range found.failed {
		detail += fmt.Sprintf("; %s could not be evaluated: %s", f.rule, f.why)
	}
	return append(reasons, call.Reason{Stage: gate.Stage, Code: call.ScopeNotGranted, Detail: detail, Hint: v.hint})
}

func yes(format string, args ...any) call.Reason {
	return call.Reason{Stage: gate.Stage, Allowed: true, Detail: fmt.Sprintf(format, args...)}
}

func no(code call.Code, format string, args ...any) call.Reason {
	return call.Reason{Stage: gate.Stage, Code: code, Detail: fmt.Sprintf(format, args...)}
}

func counted(rules int) string {
	if rules == 1 {
		return "1 rule is"
	}
	return fmt.Sprintf("%d rules are", rules)
}
