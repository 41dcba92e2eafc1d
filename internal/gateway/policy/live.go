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

// Options configure a [Live] policy.
type Options struct {
	// File contains the rules, Config the user's map of scopes.
	File, Config string
	// Catalogue reads the map for scopes that Config does not map. CatalogueFile is
	// the file to watch for changes of that map. A nil Catalogue maps no scopes.
	Catalogue     func() (Catalogue, error)
	CatalogueFile string
	// Work returns the working folder for servers of a GPARS agent that have none in
	// config.toml. Nil if it is unknown.
	Work func(agent string) string
	// Log receives a message when rules were read and when reading them failed.
	Log func(message string)
	// Now is the clock for rules; nil means time.Now.
	Now func() time.Time
	// Glance is how long a check for changed files is valid. 0 checks before every
	// decision, which is wasteful under load.
	Glance time.Duration
}

// Live is the current policy of the user, read again whenever its file changes. It
// is a [gate.Policy].
//
// A changed file replaces the rules completely or not at all. A file that was moved
// into place is read at once. A file that is being written in place is read when the
// writing has paused: half a file can be valid and forbid less. If the file cannot be
// used, the last good rules stay in force. If the file is missing, only their forbids
// stay, so that losing or deleting it permits nothing.
type Live struct {
	options Options
	current atomic.Pointer[snapshot]
	reading chan struct{} // a lock that is held while files are checked and read
	rules   source
	others  []source // the files that map scopes
	opened  time.Time
	checked atomic.Int64 // start of the last completed check of the files, since opened
}

// snapshot is the policy in force. Only its cache of views changes.
type snapshot struct {
	rules     *Rules // nil if there are none
	scopes    Scopes
	works     map[string]string // working folders by server, from config.toml
	work      func(agent string) string
	catalogue Catalogue
	// problem is the reason that the current file is not in force. shut is set if no
	// rules are in force, so that every call is refused.
	problem error
	shut    bool
	loaded  time.Time

	views sync.Map // viewKey → *view
	count atomic.Int64
}

// Status describes the policy in force.
type Status struct {
	File   string    `json:"file"`
	Rules  int       `json:"rules"`
	Loaded time.Time `json:"loaded"`
	// Problem is the reason that the current file is not in force; empty if it is.
	Problem string `json:"problem"`
}

var _ gate.Policy = (*Live)(nil)

// Open reads the policy. If the file cannot be used, the policy refuses every call
// until the file is fixed.
func Open(o Options) *Live {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Live{options: o, reading: make(chan struct{}, 1), opened: time.Now(), rules: source{path: o.File}}
	for _, path := range []string{o.Config, o.CatalogueFile} {
		if path != "" {
			l.others = append(l.others, source{path: path})
		}
	}
	l.now()
	return l
}

// Status returns the current status.
func (l *Live) Status() Status {
	s := l.now()
	status := Status{File: l.options.File, Loaded: s.loaded, Rules: s.rules.Len()}
	if s.problem != nil {
		status.Problem = s.problem.Error()
	}
	return status
}

// now returns the policy in force. It waits as long as that takes.
func (l *Live) now() *snapshot {
	s, _ := l.refresh(context.Background()) // this context never ends
	return s
}

// refresh reads changed files and returns the policy in force. Concurrent callers wait
// for the read, so that a rule revoked before their call no longer applies. The error
// is that of ctx.
func (l *Live) refresh(ctx context.Context) (*snapshot, error) {
	asked := time.Since(l.opened)
	known := func() *snapshot {
		if asked-time.Duration(l.checked.Load()) < l.options.Glance {
			return l.current.Load()
		}
		return nil
	}
	if s := known(); s != nil {
		return s, nil
	}
	select {
	case l.reading <- struct{}{}:
	default:
		select {
		case l.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-l.reading }()
	if s := known(); s != nil {
		return s, nil // another caller has just checked
	}
	began := time.Since(l.opened)
	was := l.current.Load()
	if was == nil || l.changed() {
		next := l.next(was)
		l.current.Store(next)
		l.report(was, next)
		was = next
	}
	l.checked.Store(int64(began))
	return was, nil
}

func (l *Live) changed() bool {
	changed := l.rules.changed()
	for i := range l.others {
		changed = l.others[i].changed() || changed
	}
	return changed
}

// next returns the policy in force after a change.
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
		now.problem = fmt.Errorf("%s is missing: its forbid rules stay in force, and nothing is permitted", l.options.File)
	}
	return now
}

// report logs a change. Problems are in capitals.
func (l *Live) report(was, now *snapshot) {
	if was != nil && was.problem != nil && now.problem != nil && was.problem.Error() == now.problem.Error() {
		return // already reported
	}
	switch {
	case now.shut:
		l.options.Log(fmt.Sprintf("THE POLICY CANNOT BE USED, and every call is refused: %v", now.problem))
	case now.problem != nil:
		l.options.Log(fmt.Sprintf("THE POLICY CHANGED AND CANNOT BE USED; the last good rules stay in force: %v", now.problem))
	case was != nil:
		l.options.Log(fmt.Sprintf("the policy was read again: %s in force", counted(now.rules.Len())))
	}
}

// source is a file that may change.
type source struct {
	path string
	seen fs.FileInfo // nil if it was not there
	err  error       // why it could not be read
	// young is set if the file was read so soon after a write that its modification
	// time would not show another write.
	young bool
	text  []byte
}

// A write counts as complete after settled. After trusted, a file's modification time
// shows every later write.
const (
	settled = 100 * time.Millisecond
	trusted = time.Second
)

// changed reports whether the file differs from the one that was read, and is complete.
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

// differs compares the content of a file whose modification time cannot be trusted.
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

// read reads the file and remembers its identity.
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

// viewKey has every property of a call that its view depends on.
type viewKey struct {
	subject
	asked string // the manifest's digest: the hint names a scope that the manifest requests
}

// maxViews bounds the cache of views.
const maxViews = 10_000

// Judge returns the reasons of the user's rules to permit or forbid a call.
func (l *Live) Judge(ctx context.Context, a *agent.Agent, name string, t *agent.Tool, c *call.Call) []call.Reason {
	s, err := l.refresh(ctx)
	if err != nil {
		return []call.Reason{no(call.PolicyDenied, "the policy changed and is still being read: %v", err)}
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

// grantHint returns the command that grants a call. It is empty if a name in the
// command would need quoting in a shell.
func grantHint(a *agent.Agent, on subject, scopes []string) string {
	switch scope := scopeToGrant(a, on.server, scopes); {
	case scope != "" && plainWord(on.agent) && plainWord(on.server) && plainWord(scope):
		return fmt.Sprintf("grant it: ambit grant %s --server %s --scope %s", on.agent, on.server, scope)
	case len(scopes) == 0 && plainWord(on.server) && plainWord(on.tool):
		return fmt.Sprintf("map a scope to it in config.toml: [scopes.%q] SCOPE = [%q], then grant that", on.server, on.tool)
	}
	return ""
}

// base returns the folder that a server resolves relative paths in; empty if it is
// unknown.
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

// scopeToGrant returns one of the scopes, preferably one that the agent requests.
func scopeToGrant(a *agent.Agent, server string, scopes []string) string {
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

// ServerOf returns the server part of a tool's name in Cedar.
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
		return []call.Reason{no(call.PolicyDenied, "the policy cannot be used, so every call is refused: %v", s.problem)}
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
	reasons := s.warning()
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

// warning returns a reason that reports that the file is not in force.
func (s *snapshot) warning() []call.Reason {
	if s.problem == nil {
		return nil
	}
	return []call.Reason{yes("the last good rules are in force, since the policy cannot be used: %v", s.problem)}
}

// forbidden returns a reason for each rule that forbids a call.
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

// maxPermits bounds the permits that are named. One permit is enough; each forbid is
// named.
const maxPermits = 20

// permitted adds a reason for each permit, or that there is none.
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
