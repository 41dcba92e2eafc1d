// Package console serves the daemon's web pages. They show the agents, what each agent may do, what
// it did, and the calls that wait for approval.
//
// The server renders every page, and pages work without scripts. One small script keeps a page
// live: an event stream reports a change, the script fetches the page again and replaces the parts
// marked data-live. There is no build step, and nothing is loaded from other hosts.
//
// A person signs in with a link that works once, within ten minutes. The session is a cookie that
// scripts cannot read and other sites cannot send. Every request and every stream checks the
// session again: it ends when the API key of its link is revoked, or when its token expires. A
// session from the daemon's temporary key works at that daemon only. Every change is a POST with
// the session's form token. The content security policy blocks inline scripts, inline styles and
// frames, so that the output of a tool server stays text.
//
// A browser sends a cookie to every port of its host, but not outside the cookie's path. So each
// session has pages below an address that cannot be guessed, and that address is the path of its
// cookie. The cookie and the address are only valid together, and no page sends its address as a
// referrer.
//
// The console reaches the daemon through [Backend] and imports nothing of it.
package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// Backend is the daemon as the console needs it. Every signed-in person is an administrator.
type Backend interface {
	// Cards returns all agents, in the daemon's order.
	Cards() []Card
	// Agent returns nil for an unknown name.
	Agent(ctx context.Context, name string) *Agent
	// Call makes a call through the agent's gateway, for the signed-in person.
	Call(ctx context.Context, name string, c *call.Call) (call.Result, error)
	// Why explains what the gateway would decide about a call.
	Why(ctx context.Context, name string, c *call.Call) (allowed bool, reasons []call.Reason, err error)
	// SetSecret fills a credential slot.
	SetSecret(name, ref, value string) error
	Intents(ctx context.Context) ([]Intent, error)
	// Policy returns the user's policy file, its text and its problem, if it has one.
	Policy() (file, text, problem string)
	SpentToday(ctx context.Context) ([]Spent, error)
	// Standing returns a [*call.Refusal] if the principal would be rejected now, and another error
	// if that cannot be checked.
	Standing(ctx context.Context, p *identity.Principal) error
	// Changed returns nil when something may have changed, or ctx's error. Mark differs if it has.
	Changed(ctx context.Context) error
	Mark(ctx context.Context) string
}

// Approvals are the calls that wait for a person.
type Approvals interface {
	List(ctx context.Context) ([]*approval.Question, error)
	// Waiting is List without the arguments, which are large and sealed.
	Waiting(ctx context.Context) ([]*approval.Question, error)
	Decide(ctx context.Context, id string, yes bool, who, reason string) error
}

// Journal is the audit log; see [journal.Journal].
type Journal interface {
	Show(ctx context.Context, f journal.Filter) ([]journal.Entry, error)
	Ends(ctx context.Context) (journal.Ends, error)
	Follow(ctx context.Context, from journal.Ends, f journal.Filter, each func(journal.Entry) error) error
	Prove(ctx context.Context, log, seq int64) (*journal.Proof, error)
}

// SingleUse records ids that may be used once: sign-in links and ended sessions.
type SingleUse interface {
	// Spend uses up an id and reports whether it was unused.
	Spend(ctx context.Context, id string, until time.Time) (first bool, err error)
	Spent(ctx context.Context, id string) (bool, error)
}

// Card is an agent in a list.
type Card struct {
	Name, Title, Description, ID, Dialect, State, Error string
	SideEffects                                         []string
	Tools                                               int
}

// Agent is an agent with all details.
type Agent struct {
	Card
	Version, Kind, Digest, Path string
	Tools                       []Tool
	Servers                     []Server
	Slots                       []Slot
	Facts                       []Fact
	Guardrails                  []Fact
	Problems                    []Problem
	// Watch lists what deserves a second look.
	Watch []string
	Needs []Need
}

// Need is a server that an agent requires or can use, and how it was resolved.
type Need struct {
	Server, Version, Resolved, Problem string
	Optional                           bool
	Scopes                             []Scope
}

// Scope is a permission that an agent requests on such a server. Granted describes the grant; OK
// and Partly summarise it.
type Scope struct {
	Name, Granted string
	OK, Partly    bool
}

// Tool is a tool of an agent. Schema is its input schema.
type Tool struct {
	Name, URI, Description, SideEffect, Binding string
	Callable                                    bool
	Approval                                    bool
	Limits                                      string
	Schema                                      json.RawMessage
}

// Server is the result of proving a tool server.
type Server struct {
	Alias, Code, Message, Protocol, Digest string
	OK, Contained                          bool
	Missing, Unexpected, Warnings          []string
	Changed                                []Drift
}

// Drift is a tool whose definition differs from the locked one.
type Drift struct{ Tool, Was, Is string }

// Slot is a credential that an agent needs.
type Slot struct {
	Ref, Type, Description string
	Hosts                  []string
	Required, Set          bool
}

// Fact is a labelled list of values.
type Fact struct {
	Label  string
	Values []string
}

// Problem is a diagnostic of a manifest.
type Problem struct {
	Code, Severity, Message, Hint, Frame string
	Line, Column                         int
}

// Intent is a request to a program.
type Intent struct {
	ID, Agent, State, Priority, Principal string
	Asked                                 time.Time
	Took                                  time.Duration
}

// Spent is the amount that a capped tool has used today.
type Spent struct{ Agent, Tool, Amount string }

// ErrNoAgent reports an agent that does not exist or cannot be served.
var ErrNoAgent = errors.New("no agent with this name is being served")

type Options struct {
	// Context ends with the daemon.
	Context   context.Context
	Backend   Backend
	Approvals Approvals
	Journal   Journal
	SingleUse SingleUse
	// Keys seal cookies and links.
	Keys *identity.Keys
	// Secure marks cookies for TLS only.
	Secure  bool
	Version string
	Log     func(format string, args ...any)
}

// Console is the HTTP handler of the pages.
type Console struct {
	o        Options
	mux      *http.ServeMux
	pages    map[string]*template.Template
	activity *activity
	// daemonKey names the daemon's temporary key, which ends with the daemon.
	daemonKey string
}

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed assets
var assetFiles embed.FS

func New(o Options) (*Console, error) {
	c := &Console{
		o: o, mux: http.NewServeMux(), pages: map[string]*template.Template{},
		activity: newActivity(), daemonKey: rand.Text(),
	}
	names, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return nil, err
	}
	layout, err := template.New("layout.html").Funcs(funcs).ParseFS(pageFiles, "pages/layout.html")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		short := strings.TrimSuffix(strings.TrimPrefix(name, "pages/"), ".html")
		if short == "layout" {
			continue
		}
		page, err := layout.Clone()
		if err == nil {
			page, err = page.ParseFS(pageFiles, name)
		}
		if err != nil {
			return nil, err
		}
		c.pages[short] = page
	}
	assets, err := fs.Sub(assetFiles, "assets")
	if err != nil {
		return nil, err
	}
	files := http.FileServerFS(assets)
	c.mux.HandleFunc("GET /assets/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		http.StripPrefix("/assets/", files).ServeHTTP(w, r)
	})
	c.mux.HandleFunc("GET /", c.signInFirst)
	c.mux.HandleFunc("GET /login", c.loginPage)
	c.mux.HandleFunc("POST /login", c.login)
	for pattern, show := range map[string]page{
		"GET /":                           (*Console).notFound,
		"GET /{$}":                        (*Console).agents,
		"GET /agents/{name}":              (*Console).agent,
		"POST /agents/{name}/call":        (*Console).try,
		"POST /agents/{name}/secrets":     (*Console).setSecret,
		"GET /approvals":                  (*Console).approvals,
		"POST /approvals/{id}":            (*Console).decide,
		"GET /journal":                    (*Console).journal,
		"GET /journal/{log}/{seq}":        (*Console).record,
		"GET /activity":                   (*Console).charts,
		"GET /queue":                      (*Console).queue,
		"GET /policy":                     (*Console).policy,
		"GET /live":                       (*Console).live,
		"POST /logout":                    (*Console).logout,
		"GET /agents/{name}/tools/{tool}": (*Console).tool,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		c.mux.Handle(method+" "+homes+"{home}"+path, c.signedIn(show))
	}
	return c, nil
}

// page answers a signed-in person.
type page func(*Console, http.ResponseWriter, *http.Request, *session)

// Owns reports whether a path belongs to the console. Page names without a session's address come
// from bookmarks and typing; they lead to the sign-in page.
func (c *Console) Owns(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return path == "/" || slices.Contains([]string{
		"assets", "login", "console", "agents", "approvals", "journal", "activity", "queue", "policy",
	}, first)
}

func (c *Console) notFound(w http.ResponseWriter, r *http.Request, s *session) {
	c.failed(w, r, s, http.StatusNotFound, "There is no page at this address.", "Use the menu above.")
}

// policyHeader allows the console's own style sheet, script, images and event stream, and nothing
// inline.
const policyHeader = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; " +
	"require-trusted-types-for 'script'; trusted-types ambit"

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policyHeader)
	// The path is secret, so referrers contain the origin only. With no-referrer, browsers send
	// "Origin: null" with the console's own forms.
	w.Header().Set("Referrer-Policy", "strict-origin")
	c.mux.ServeHTTP(w, r)
}

// view is the data of every page.
type view struct {
	Title   string
	Base    string // prefix of all links
	Here    string // current menu entry
	Who     string
	Token   string
	Waiting int
	Version string
	Data    any
}

func (c *Console) show(
	w http.ResponseWriter, r *http.Request, s *session, status int, name, title, here string, data any,
) {
	v := view{Title: title, Base: "/", Here: here, Version: c.o.Version, Data: data}
	if s != nil {
		v.Base, v.Who, v.Token = s.base(), s.Who.Name, s.Token
		if waiting, err := c.o.Approvals.Waiting(r.Context()); err == nil {
			v.Waiting = len(waiting)
		}
	}
	var out bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&out, "layout.html", v); err != nil {
		c.o.Log("console: cannot render page %s: %v", name, err)
		http.Error(w, "this page cannot be shown; see the daemon's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = out.WriteTo(w) // the client may be gone
}

// failed shows an error page.
func (c *Console) failed(w http.ResponseWriter, r *http.Request, s *session, status int, what, hint string) {
	c.show(w, r, s, status, "error", what, "", map[string]string{"What": what, "Hint": hint})
}

// unavailable logs err and shows an error page without it.
func (c *Console) unavailable(w http.ResponseWriter, r *http.Request, s *session, what string, err error) {
	c.o.Log("console: %s: %v", what, err)
	c.failed(w, r, s, http.StatusServiceUnavailable, what, "The daemon's log has the reason.")
}
