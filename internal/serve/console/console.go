// Package console is the daemon's face for people: pages that show what agents are
// and may do, what they did, and what waits for a decision.
//
// Pages are made on the server and work without scripts. One small script keeps
// them live: it is told over an event stream that something changed, fetches the
// page again, and puts the parts marked data-live in place. There is no build
// step and nothing from elsewhere.
//
// A person signs in with a link that is good once and for a few minutes. What
// they get is a cookie that no script reads and no other site sends. It opens
// nothing once the key is revoked, or the token over, that the link was made with:
// that is asked at every request, and of every stream. With the daemon's own passing
// key it opens nothing at any other daemon. Whatever changes something is a POST with
// a token of that cookie. The content policy lets no inline script, style or frame
// through, so that what a tool server writes stays text.
//
// A browser sends a cookie to every port of its host, whoever listens there, but not
// outside its path. So the pages of a session are below an address that nobody can
// guess, which is the path of its cookie; neither opens anything without the other,
// and no page tells its address to the next.
//
// The console knows the daemon as a [House]: it imports nothing of it.
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
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// House is what the console shows. Whoever signs in is an administrator.
type House interface {
	// Cards are all agents, in the order of the daemon.
	Cards() []Card
	// Agent is one of them; nil if there is none of that name.
	Agent(ctx context.Context, name string) *Agent
	// Call makes a call through the agent's door, for the person at the console.
	Call(ctx context.Context, name string, c *call.Call) (call.Result, error)
	// Why tells what the door would say of a call.
	Why(ctx context.Context, name string, c *call.Call) (allowed bool, reasons []call.Reason, err error)
	// KeepSecret fills a credential slot.
	KeepSecret(ctx context.Context, name, ref, value string) error

	Approvals(ctx context.Context) ([]*approval.Question, error)
	// Waiting is how many of them there are.
	Waiting(ctx context.Context) (int, error)
	Decide(ctx context.Context, id string, yes bool, who, reason string) error

	Show(ctx context.Context, f journal.Filter) ([]journal.Entry, error)
	Ends(ctx context.Context) (journal.Ends, error)
	Follow(ctx context.Context, from journal.Ends, f journal.Filter, each func(journal.Entry) error) error
	Prove(ctx context.Context, log, seq int64) (*journal.Proof, error)
	Intents(ctx context.Context) ([]Intent, error)
	// Policy is the text of the user's policy, where it lies, and what is wrong
	// with it.
	Policy() (file, text, problem string)
	Spent(ctx context.Context) ([]Spent, error)
	// Spend uses up what is good once, and reports whether it was the first time;
	// IsSpent only looks.
	Spend(ctx context.Context, id string, until time.Time) (bool, error)
	IsSpent(ctx context.Context, id string) (bool, error)
	// Standing says why somebody who was let in would not be now: with a
	// [*call.Refusal], or with the error for which it cannot be told.
	Standing(ctx context.Context, p *identity.Principal) error
	// Changed returns when something may have changed, or with ctx's error. Mark
	// is a text that is another one if it has.
	Changed(ctx context.Context) error
	Mark(ctx context.Context) string
}

// Card is an agent in a list.
type Card struct {
	Name, Title, Description, ID, Dialect, State, Error string
	SideEffects                                         []string
	Tools                                               int
}

// Agent is all that is shown of one.
type Agent struct {
	Card
	Version, Kind, Digest, Path string
	Tools                       []Tool
	Servers                     []Server
	Slots                       []Slot
	Facts                       []Fact
	Rails                       []Fact
	Problems                    []Problem
	// Watch is what to look at twice.
	Watch []string
	Needs []Need
}

// Need is a server that an agent requires or can use, and what became of it here.
type Need struct {
	Server, Version, Resolved, Problem string
	Optional                           bool
	Scopes                             []Scope
}

// Scope is what an agent asks to do on such a server. Granted is whether it may, in
// words; OK and Partly say it shortly.
type Scope struct {
	Name, Granted string
	OK, Partly    bool
}

// Tool is a tool of an agent. Schema is that of its input.
type Tool struct {
	Name, URI, Description, SideEffect, Binding string
	Callable                                    bool
	Approval                                    bool
	Limits                                      string
	Schema                                      json.RawMessage
}

// Server is what was found out about a tool server.
type Server struct {
	Alias, Code, Message, Protocol, Digest string
	OK, Contained                          bool
	Missing, Unexpected, Warnings          []string
	Changed                                []Drift
}

// Drift is a tool whose definition is not the locked one.
type Drift struct{ Tool, Was, Is string }

// Slot is a credential that an agent wants.
type Slot struct {
	Ref, Type, Description string
	Hosts                  []string
	Required, Set          bool
}

// Fact is a line of a list: what it is about, and what there is to say.
type Fact struct {
	Label  string
	Values []string
}

// Problem is a diagnostic of a manifest.
type Problem struct {
	Code, Severity, Message, Hint, Frame string
	Line, Column                         int
}

// Intent is something that was asked of a program.
type Intent struct {
	ID, Agent, State, Priority, Principal string
	Asked                                 time.Time
	Took                                  time.Duration
}

// Spent is what a capped tool has used up today.
type Spent struct{ Agent, Tool, Amount string }

// Errors of a House.
var (
	// ErrNoAgent says that there is no agent of that name, or that it cannot be
	// used.
	ErrNoAgent = errors.New("there is no agent of that name, or it cannot be used")
)

// Options are what a console is made of.
type Options struct {
	// Context ends with the daemon.
	Context context.Context
	House   House
	// Keys seal cookies and links.
	Keys *identity.Keys
	// Secure says that people come by TLS.
	Secure  bool
	Version string
	Log     func(format string, args ...any)
}

// Console answers people.
type Console struct {
	o        Options
	mux      *http.ServeMux
	pages    map[string]*template.Template
	activity *activity
	own      string // names the daemon's passing key, which ends with it
}

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// New makes a console.
func New(o Options) (*Console, error) {
	c := &Console{o: o, mux: http.NewServeMux(), pages: map[string]*template.Template{}, activity: newActivity(), own: rand.Text()}
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
	c.mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})))
	c.mux.HandleFunc("GET /", c.stranger)
	c.mux.HandleFunc("GET /login", c.loginPage)
	c.mux.HandleFunc("POST /login", c.login)
	for pattern, show := range map[string]page{
		"GET /":                           (*Console).nowhere,
		"GET /{$}":                        (*Console).agents,
		"GET /agents/{name}":              (*Console).agent,
		"POST /agents/{name}/call":        (*Console).try,
		"POST /agents/{name}/secrets":     (*Console).keepSecret,
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

// page answers somebody who is signed in.
type page func(*Console, http.ResponseWriter, *http.Request, *session)

// Owns reports whether a path is the console's. Names of pages without a session's
// address are what people type or have kept: they lead to the page to sign in.
func (c *Console) Owns(path string) bool {
	if path == "/" {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "assets", "login", "console", "agents", "approvals", "journal", "activity", "queue", "policy":
		return true
	}
	return false
}

// nowhere answers a person at an address that does not exist.
func (c *Console) nowhere(w http.ResponseWriter, r *http.Request, s *session) {
	c.sorry(w, r, s, http.StatusNotFound, "There is nothing at this address.", "The menu shows what there is.")
}

// policyHeader lets a page have its own style, script, images and event stream,
// and nothing else. There is nothing inline.
const policyHeader = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types ambit"

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policyHeader)
	// No page tells its path. With no-referrer, a browser says of its own forms that
	// they come from nowhere.
	w.Header().Set("Referrer-Policy", "strict-origin")
	c.mux.ServeHTTP(w, r)
}

// view is what every page gets.
type view struct {
	Title   string
	Base    string // what links begin with
	Here    string // which entry of the menu it belongs to
	Who     string
	Token   string
	Waiting int
	Version string
	Data    any
}

// show writes a page.
func (c *Console) show(w http.ResponseWriter, r *http.Request, s *session, status int, name, title, here string, data any) {
	v := view{Title: title, Base: "/", Here: here, Version: c.o.Version, Data: data}
	if s != nil {
		v.Base, v.Who, v.Token = s.base(), s.Who.Name, s.Token
		if waiting, err := c.o.House.Waiting(r.Context()); err == nil {
			v.Waiting = waiting
		}
	}
	var out bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&out, "layout.html", v); err != nil {
		c.o.Log("the page %s cannot be made: %v", name, err)
		http.Error(w, "this page cannot be shown; the daemon's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = out.WriteTo(w) // whoever asked may be gone
}

// sorry shows that something did not work.
func (c *Console) sorry(w http.ResponseWriter, r *http.Request, s *session, status int, what, hint string) {
	c.show(w, r, s, status, "sorry", what, "", map[string]string{"What": what, "Hint": hint})
}

func (c *Console) broken(w http.ResponseWriter, r *http.Request, s *session, what string, err error) {
	c.o.Log("console: %s: %v", what, err)
	c.sorry(w, r, s, http.StatusServiceUnavailable, what, "The daemon's log says why.")
}
