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
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Options configures a [Live] policy.
type Options struct {
	// File is the policy file. Config is config.toml, in which the user maps scopes to tools.
	File, Config string
	// Catalogue loads the catalogue. The catalogue maps the scopes that Config does not map. If Catalogue is nil, only
	// Config maps scopes. CatalogueFile is the path of the catalogue's file. Live watches this file for changes.
	Catalogue     func() (Catalogue, error)
	CatalogueFile string
	// Work returns the working folder of an agent's servers. It is called only for GPARS agents, and only for servers
	// without a working folder in config.toml. If Work is nil, the folder is unknown.
	Work func(agent string) string
	// Log receives a message each time the rules are read again or cannot be read.
	Log func(message string)
	// Now is the clock that rules use; nil means time.Now.
	Now func() time.Time
	// Glance is the minimum time between two checks for changed files. If Glance is 0, every decision checks the files,
	// which is slow under load.
	Glance time.Duration
}

// Live is the user's current policy. It reads the policy file again whenever the file changes. It implements
// [gate.Policy].
//
// A changed file replaces either all rules or none. If a new file is moved into place, Live reads it immediately. If
// the file is modified in place, Live waits until no more writes happen, because a half-written file could be valid
// and forbid fewer calls. If the file cannot be used, the last valid rules stay in force. If the file is deleted, only
// its forbid rules stay in force, and nothing is permitted.
type Live struct {
	options Options
	current atomic.Pointer[snapshot]
	reading chan struct{} // a mutex that is held while files are checked and read
	files   []source      // the policy file, and the files that map scopes
	opened  time.Time
	checked atomic.Int64 // the start of the last completed check of the files, in nanoseconds after l.opened
}

// fileData contains everything that was read from the files.
type fileData struct {
	rules     *Rules // nil if there is no policy file
	scopes    Scopes
	works     map[string]string // working folders by server, from config.toml
	catalogue Catalogue
}

// snapshot is the policy at one point in time. Apart from its caches, a snapshot does not change.
type snapshot struct {
	fileData
	work func(agent string) string
	// problem is the reason why the current file is not in force. If refusesAll is set, no rules are in force and every
	// call is refused.
	problem    error
	refusesAll bool

	views    sync.Map // viewKey → *view
	count    atomic.Int64
	listings listings
}

var _ gate.Policy = (*Live)(nil)

// Open reads the policy. If the file cannot be used, the policy refuses every call until the file is fixed.
func Open(o Options) *Live {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Live{options: o, reading: make(chan struct{}, 1), opened: time.Now()}
	for i, path := range []string{o.File, o.Config, o.CatalogueFile} {
		if path != "" || i == 0 {
			l.files = append(l.files, source{path: path})
		}
	}
	l.load()
	return l
}

// Problem returns the reason why the current file is not in force. It returns "" if the file is in force.
func (l *Live) Problem() string {
	if s := l.load(); s.problem != nil {
		return s.problem.Error()
	}
	return ""
}

// load reads changed files and returns the policy in force.
func (l *Live) load() *snapshot {
	s, _ := l.refresh(context.Background()) // this context is never canceled
	return s
}

// refresh reads changed files and returns the policy in force. Concurrent callers wait until the files are read,
// because a revoked permit must not apply to their calls. If ctx is canceled first, refresh returns ctx.Err().
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
		return s, nil // another caller has just checked the files
	}
	began := time.Since(l.opened)
	was := l.current.Load()
	if was == nil || l.hasChanged() {
		next := l.next(was)
		l.current.Store(next)
		l.report(was, next)
		was = next
	}
	l.checked.Store(int64(began))
	return was, nil
}

func (l *Live) hasChanged() bool {
	changed := false
	for i := range l.files {
		changed = l.files[i].hasChanged() || changed
	}
	return changed
}

// next reads the files and returns the new policy. The argument is the previous policy, or nil on the first read.
func (l *Live) next(was *snapshot) *snapshot {
	now := &snapshot{work: l.options.Work}
	var err error
	for i := range l.files {
		err = cmp.Or(err, l.files[i].read())
	}
	there := l.files[0].seen != nil
	if err == nil && there {
		now.rules, err = Parse(l.options.File, l.files[0].text)
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
	case err != nil && (was == nil || was.refusesAll):
		now.rules, now.problem, now.refusesAll = nil, err, true
	case err != nil:
		now.fileData, now.problem = was.fileData, err
	case !there && was != nil && was.rules != nil:
		now.rules = was.rules.withoutPermits()
		now.problem = fmt.Errorf("%s is missing: its forbid rules stay in force, and nothing is permitted", l.options.File)
	}
	return now
}

// report logs that the policy changed. Messages about problems start with words in capital letters.
func (l *Live) report(was, now *snapshot) {
	if was != nil && was.problem != nil && now.problem != nil && was.problem.Error() == now.problem.Error() {
		return // already reported
	}
	switch {
	case now.refusesAll:
		l.options.Log(fmt.Sprintf("warning: THE POLICY CANNOT BE USED, and every call is refused: %v", now.problem))
	case now.problem != nil:
		l.options.Log(fmt.Sprintf("warning: THE POLICY CHANGED AND CANNOT BE USED; the last good rules stay in force: %v",
			now.problem))
	case was != nil:
		l.options.Log(fmt.Sprintf("the policy was read again: %s in force", counted(now.rules.Len())))
	}
	if bad := now.rules.Errors(); now.problem == nil && len(bad) > 0 {
		l.options.Log(fmt.Sprintf("warning: THE POLICY HAS ERRORS (%d): a permit rule with an error permits nothing, and a "+
			"forbid rule with an error may match every call or none; to see the errors, run: ambit policy check; "+
			"the first error is on line %d: %s",
			len(bad), bad[0].Line, bad[0].Message))
	}
}

// source is a file that is watched for changes.
type source struct {
	path string
	seen fs.FileInfo // nil if the file was missing
	err  error       // the error of the last read
	// justWritten is set if the file was read shortly after a write. In that case, a second write could leave the
	// modification time unchanged.
	justWritten bool
	text        []byte
}

// writePause is how long a file must stay unchanged until a write is considered complete. minAge is how old a write
// must be so that the next write certainly changes the modification time of the file.
const (
	writePause = 100 * time.Millisecond
	minAge     = time.Second
)

// hasChanged reports whether the file has changed since the last read. It returns false while another process seems to
// be writing the file.
func (s *source) hasChanged() bool {
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
		if !s.justWritten {
			return false
		}
		was := s.text
		return s.read() != nil || !bytes.Equal(s.text, was)
	}
	age := time.Since(info.ModTime())
	return !same || age < 0 || age >= writePause
}

// read reads the file and its metadata. A missing file is not an error.
func (s *source) read() (err error) {
	*s = source{path: s.path}
	defer func() { s.err = err }()
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if s.seen, err = f.Stat(); err != nil {
		return err
	}
	if !s.seen.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", s.path)
	}
	s.justWritten = time.Since(s.seen.ModTime()) < minAge
	s.text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	return err
}

// viewKey identifies a cached view.
type viewKey struct {
	subject
	groups string // the caller's groups that rules name
	asked  string // the manifest's digest, because the view depends on the scopes that the manifest requests
}

const maxViews = 10_000

// Judge returns the reasons why the user's rules permit or forbid a call.
func (l *Live) Judge(ctx context.Context, a *agent.Agent, name string, t *agent.Tool, c *call.Call) []call.Reason {
	s, err := l.refresh(ctx)
	if err != nil {
		return []call.Reason{no(call.PolicyDenied, "the policy changed and is still being read: %v", err)}
	}
	return s.judge(ctx, l.options, a, name, t, c)
}

// view returns the rules and entities for a subject whose caller is in the given groups. The groups must be a subset
// of the groups that rules name.
func (s *snapshot) view(a *agent.Agent, on subject, groups []string) *view {
	key := viewKey{on, groupsKey(groups), a.Digest}
	if v, ok := s.views.Load(key); ok {
		return v.(*view)
	}
	scopes := s.scopes.scopesCovering(s.catalogue, on.server, on.tool)
	v := s.rules.view(on, scopes, groups)
	v.base = s.base(on)
	if requested := requestedScopes(a, on.server, scopes); a.Dialect == agent.GPARS && len(requested) < len(scopes) {
		v.ceiling = s.rules.view(on, requested, groups)
		v.ceiling.base = v.base
		v.ceiling.rules = slices.DeleteFunc(v.ceiling.rules, func(one *rule) bool { return one.forbid })
	}
	v.unpermitted = fmt.Sprintf("no rule of %s permits %s to call %s", s.rules.fileName(), v.principal, v.resource)
	for _, one := range v.rules {
		if g, ok := grantOf(one); ok && g.ID != "" && g.ID != a.ID && slices.Contains(scopes, g.Scope) {
			v.unpermitted += fmt.Sprintf("; the scope %s was granted to another agent with the same name, %s",
				g.Scope, quote(g.ID))
		}
	}
	v.covered = s.scopes.explain(s.catalogue, scopes, on.server, on.tool)
	v.hint = grantHint(a, on, scopes)
	if s.count.Add(1) > maxViews {
		s.views.Clear()
		s.count.Store(1)
	}
	s.views.Store(key, v)
	return v
}

// grantHint returns a hint with the command that permits a call. If no scope covers the tool, the hint explains how
// to map a scope. If the agent does not request a scope that covers the tool, the hint explains how to request it,
// because a grant alone has no effect.
func grantHint(a *agent.Agent, on subject, scopes []string) string {
	if len(scopes) == 0 {
		return fmt.Sprintf("map a scope to the tool in config.toml: [scopes.%q] SCOPE = [%q]; then grant that scope",
			on.server, on.tool)
	}
	scope, first := scopes[0], "grant the scope"
	if requested := requestedScopes(a, on.server, scopes); len(requested) > 0 {
		scope = requested[0]
	} else {
		first = fmt.Sprintf("add %s to the permission_scopes of %s in the manifest, then grant the scope",
			quote(scope), quote(on.server))
	}
	return fmt.Sprintf("%s: ambit grant %s --server %s --scope %s",
		first, diag.ShellWord(on.agent), diag.ShellWord(on.server), diag.ShellWord(scope))
}

// base returns the folder that a server resolves relative paths against, or "" if it is unknown.
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

// requestedScopes filters a list of scopes. It returns the scopes that the agent's manifest requests for a server, in
// the order of the manifest.
func requestedScopes(a *agent.Agent, server string, scopes []string) []string {
	var requested []string
	for i := range a.Requirements {
		if a.Requirements[i].Server != server {
			continue
		}
		for _, scope := range a.Requirements[i].Scopes {
			if slices.Contains(scopes, scope) && !slices.Contains(requested, scope) {
				requested = append(requested, scope)
			}
		}
	}
	return requested
}

// ServerOf returns the server name that rules use for a tool. For a tool without a server, this is the agent's name.
func ServerOf(name string, t *agent.Tool) string {
	switch b := t.Binding.(type) {
	case agent.OnServer:
		return b.Alias
	case agent.Native:
		return b.Namespace
	}
	return name
}

func (s *snapshot) judge(
	ctx context.Context, o Options, a *agent.Agent, name string, t *agent.Tool, c *call.Call,
) []call.Reason {
	asksPermit, on := a.Dialect == agent.GPARS, subjectOf(a, name, t)
	switch {
	case s.refusesAll:
		return []call.Reason{no(call.PolicyDenied, "the policy cannot be used, so every call is refused: %v", s.problem)}
	case s.rules == nil && !asksPermit:
		return nil
	case s.rules == nil:
		r := no(call.ScopeNotGranted, "there is no policy file %s, so nothing is granted", o.File)
		r.Hint = grantHint(a, on, s.scopes.scopesCovering(s.catalogue, on.server, on.tool))
		return []call.Reason{r}
	}
	v := s.view(a, on, s.rules.named(c.Attributes))
	if c.AttributesLost && s.view(a, on, s.rules.groups).dependsOnCaller() {
		return []call.Reason{no(call.PolicyDenied, "rules depend on the caller's groups or sign-in; both were lost when the "+
			"process that made the call ended")}
	}
	m := infoOf(c, t, o.Now())
	if v.uses.has(ofArguments) {
		m.known = knownOf(c)
	}
	reasons := s.warning()
	found, err := v.decide(ctx, m, c.Arguments)
	if ctx.Err() != nil {
		return append(reasons, no(call.TimedOut, "the call was cancelled before the policy was checked"))
	}
	if err != nil {
		r := no(call.PolicyDenied, "%v", err)
		if _, ok := errors.AsType[*flawError](err); ok {
			r.Hint = "change the argument as the message says; the policy does not need a change"
		}
		return append(reasons, r)
	}
	reasons = append(reasons, s.rules.forbidden(found)...)
	if asksPermit {
		return v.permitted(reasons, &found)
	}
	if len(reasons) == 0 {
		reasons = append(reasons, yes("no rule of %s forbids the call", s.rules.fileName()))
	}
	return reasons
}

// warning returns a reason that reports the problem with the current file. It returns nil if there is no problem.
func (s *snapshot) warning() []call.Reason {
	if s.problem == nil {
		return nil
	}
	return []call.Reason{yes("the last good rules are in force, because the policy cannot be used: %v", s.problem)}
}

// forbidden returns a reason for each rule that forbids a call.
func (r *Rules) forbidden(found verdict) []call.Reason {
	var reasons []call.Reason
	for _, f := range found.broken {
		reasons = append(reasons, no(call.PolicyDenied, "%s of %s could not be evaluated, so it is treated as matching: %s",
			f.rule, r.fileName(), f.why))
	}
	for _, one := range found.forbids {
		reasons = append(reasons, no(call.PolicyDenied, "%s of %s forbids the call", one, r.fileName()))
	}
	return reasons
}

// maxPermits is the maximum number of permit rules that are listed as reasons. A few are enough, because a single
// permit rule allows a call. Forbid rules are always listed.
const maxPermits = 20

// permitted appends a reason for each permit rule that matched. If no rule permits or forbids the call, it appends a
// reason that denies the call.
func (v *view) permitted(reasons []call.Reason, found *verdict) []call.Reason {
	named := found.permits[:min(len(found.permits), maxPermits)]
	reasons = append(reasons, call.Reason{Stage: gate.Stage, Allowed: true, Detail: v.covered})
	for _, one := range named {
		reasons = append(reasons, call.Reason{Stage: gate.Stage, Allowed: true, Detail: one.permits})
	}
	if more := len(found.permits) - len(named); more > 0 {
		reasons = append(reasons, yes("%d more rules permit the call", more))
	}
	if len(found.permits) > 0 || found.denies() {
		return reasons
	}
	detail := v.unpermitted
	for _, f := range found.failed {
		detail += fmt.Sprintf("; %s could not be evaluated: %s", f.rule, f.why)
	}
	for _, one := range found.unrequested {
		detail += fmt.Sprintf("; %s has no effect, because the manifest does not request its scope", one)
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
