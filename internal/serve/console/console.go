// Package console serves the daemon's web pages. They show the agents, their permissions, the journal, and the calls
// that wait for approval.
//
// The server renders every page, and the pages work without scripts. One small script keeps an open page up to date:
// after each event of the event stream, it fetches the page again and replaces the parts marked data-live. There is
// no build step, and nothing is loaded from other hosts.
//
// A person signs in with a link that works once, within ten minutes. The session is a cookie. Scripts cannot read the
// cookie, and other sites cannot make a browser send it. Every request and every event stream checks the session again.
// The session ends when the API key or token that requested the link becomes invalid. A session from the daemon's
// temporary key works only with that daemon.
//
// Every change is a POST with the session's form token. The content security policy blocks inline scripts, inline
// styles and frames. Output of a tool server therefore stays text.
//
// A browser sends a cookie to every port of a host, but only to addresses below the cookie's path. Each session
// therefore has a secret path, and the cookie is limited to this path. The cookie is valid only together with the
// path. Pages never send their path as a referrer.
//
// The console reaches the daemon through [Backend]. It does not import the daemon's package.
package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/manifest"
)

// Backend is the part of the daemon that the console uses. Every signed-in person is an administrator.
type Backend interface {
	// Cards returns all agents, in the daemon's order.
	Cards() []Card
	// Agent returns the details of an agent. It returns nil if no agent has this name.
	Agent(ctx context.Context, name string) *Agent
	// Call makes a call through the agent's gateway. The principal of c is the signed-in person.
	Call(ctx context.Context, name string, c *call.Call) (call.Result, error)
	// Pages returns an address at which the agent's own pages are shown to the given principal. It returns "" if the
	// agent has no pages or is not ready. The address works until the given time, or until [Console.SignedOut] reports
	// the session.
	Pages(ctx context.Context, name string, who *identity.Principal, session string, until time.Time) string
	// Why explains whether a call would be allowed, as "ambit why" does.
	Why(ctx context.Context, name string, c *call.Call) (*Verdict, error)
	// Address returns the URL of an agent for MCP clients. Without a public URL, it uses the host of the request r.
	Address(r *http.Request, name string) string
	// KeyNames returns the names that people gave to API keys, by principal. It omits keys that have no name.
	KeyNames(ctx context.Context) (map[string]string, error)
	// SignIns returns the remote servers of an agent at which each person signs in, with the state of the given
	// principal's sign-in.
	SignIns(name string, who *identity.Principal) []SignIn
	// Connect begins a sign-in of the given principal to a server, and returns the page to open. The session names the
	// browser session. Only this session can complete the sign-in with Connected, which returns the agent's name. An
	// error is a [*call.Refusal] if the person can fix its cause.
	Connect(r *http.Request, name, server string, who *identity.Principal, session string) (page string, err error)
	// ConnectWith is like Connect, but for the principal that holds an API key or token. This principal can be any
	// caller, not only an administrator.
	ConnectWith(r *http.Request, name, server, key, session string) (page string, who *identity.Principal, err error)
	Connected(ctx context.Context, who *identity.Principal, session string, answer url.Values) (name string, err error)
	// SetSecret stores a value in an agent's credential slot.
	SetSecret(name, ref, value string) error
	Intents(ctx context.Context) ([]*dispatch.Intent, error)
	// Policy returns the path and text of the user's policy file. If the policy is not in force, problem is the reason.
	Policy() (file, text, problem string)
	SpentToday(ctx context.Context) ([]limit.Spent, error)
	// Standing returns nil if the principal's key or token is still valid. It returns a [*call.Refusal] if the key or
	// token is invalid. Any other error means that the check failed.
	Standing(ctx context.Context, p *identity.Principal) error
	// Changed waits until the pages may have changed. It returns an error if ctx is done first.
	Changed(ctx context.Context) error
	// Mark returns a string that changes whenever the pages change.
	Mark(ctx context.Context) string
}

// Approvals lists the calls that wait for approval and records the decisions about them.
type Approvals interface {
	List(ctx context.Context) ([]*approval.Question, error)
	// Waiting is like List, but omits the arguments, which can be large and must be decrypted.
	Waiting(ctx context.Context) ([]*approval.Question, error)
	Decide(ctx context.Context, id string, yes bool, who, reason string) error
	// Look returns a call that waits or waited for approval, without its arguments.
	Look(ctx context.Context, id string) (*approval.Question, error)
}

// Journal is the audit log. See [journal.Journal].
type Journal interface {
	Show(ctx context.Context, f journal.Filter) ([]journal.Entry, error)
	Ends(ctx context.Context) (journal.Ends, error)
	Follow(ctx context.Context, from journal.Ends, f journal.Filter, each func(journal.Entry) error) error
	Prove(ctx context.Context, log, seq int64) (*journal.Proof, error)
}

// SingleUse records the ids of used sign-in links and of closed sessions.
type SingleUse interface {
	// Spend marks an id as used until the given time. The first result is false if the id was used before.
	Spend(ctx context.Context, id string, until time.Time) (first bool, err error)
	// Spent reports whether an id is marked as used.
	Spent(ctx context.Context, id string) (bool, error)
}

// Card describes an agent in a list. Manifest is nil if the manifest cannot be read. Model is nil if the manifest is
// invalid.
type Card struct {
	Name, Title, State, Error string
	Manifest                  *manifest.Manifest
	Model                     *agent.Agent
}

// Agent describes an agent with all its details.
type Agent struct {
	Card
	Inspection
	Tools      []Tool
	Servers    []toolserver.Proof
	Refused    []toolserver.Denial
	Slots      []Slot
	Guardrails []Fact
}

// Inspection is the part of the output of "ambit inspect" that the page of an agent shows.
type Inspection struct {
	// Resolved is the agent with the servers and tools that were found for its requirements.
	Resolved *agent.Agent
	// Facts describes what the agent may do.
	Facts []Fact
	// Access describes what each tool server can use. The label is the server's alias.
	Access []Fact
	// Watch contains the warnings that a reviewer should check first.
	Watch []string
	Needs []Need
	// Refuses reports whether the policy refuses every call of a tool. It is nil if the agent needs no grants.
	Refuses func(*agent.Tool) bool
}

// Verdict is an answer of "ambit why". Summary is one sentence. Class is allow or deny, or unknown if the decision
// depends on something that was not checked.
type Verdict struct {
	Summary, Class string
	Reasons        []call.Reason
	Unchecked      []call.Reason
}

// Frame returns the line of the manifest that contains the problem d, shortened if it is long. A second line marks the
// position of the problem.
func (a *Agent) Frame(d manifest.Diagnostic) string {
	if a.Manifest.Source == nil || d.Line == 0 {
		return ""
	}
	f := a.Manifest.Source.Frame(d)
	return f.Text + "\n" + strings.Repeat(" ", f.Before) + strings.Repeat("^", max(1, f.Marked))
}

// Need is a server that an agent requires or can use. Version is the constraint in the manifest, and Resolved is the
// version that was found.
type Need struct {
	Server, Version, Resolved, Problem string
	Optional                           bool
	Scopes                             []Scope
}

// Scope is a permission that an agent requests on a server. Granted describes what the user granted. OK means that the
// whole scope is granted. Partly means that only a part of it is granted.
type Scope struct {
	Name, Granted string
	OK, Partly    bool
}

// Tool is a tool of an agent. If the manifest contains no description or input schema for the tool, they come from the
// tool's server. Served is the tool's name for clients, which is unique in the agent.
type Tool struct {
	agent.Tool
	Served   string
	Callable bool
}

// Slot is a credential slot: a credential that an agent needs.
type Slot struct {
	credential.Reference
	Label, Description string
	Set                bool
}

// Fact is a labelled list of values.
type Fact struct {
	Label  string
	Values []string
}

// ErrNoAgent means that the agent does not exist or cannot be served.
var ErrNoAgent = errors.New("no agent with this name is being served")

// Options configures a console.
type Options struct {
	// Context is canceled when the daemon begins to shut down.
	Context   context.Context
	Backend   Backend
	Approvals Approvals
	Journal   Journal
	SingleUse SingleUse
	// Keys seals cookies and links.
	Keys *identity.Keys
	// Secure sets the Secure attribute of cookies, so that browsers send them only over TLS.
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
	// daemonKey is a random id for the daemon's temporary key. Like the key, it is valid only until the daemon exits.
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
	c.mux.HandleFunc("GET "+AnswerPath, c.answer)
	c.mux.HandleFunc("GET "+signin.PagePath, c.serverPage)
	c.mux.HandleFunc("POST "+signin.PagePath, c.serverLogin)
	for pattern, show := range map[string]page{
		"GET /":                           (*Console).notFound,
		"GET /{$}":                        (*Console).agents,
		"GET /agents/{name}":              (*Console).agent,
		"GET /agents/{name}/ui":           (*Console).ui,
		"POST /agents/{name}/call":        (*Console).try,
		"POST /agents/{name}/secrets":     (*Console).setSecret,
		"POST /agents/{name}/connect":     (*Console).connect,
		"GET /connected":                  (*Console).connected,
		"GET /approvals":                  (*Console).approvals,
		"GET /approvals/{id}":             (*Console).approvals,
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
		c.mux.Handle(method+" "+sessionPrefix+"{home}"+path, c.signedIn(show))
	}
	return c, nil
}

// page handles a request from a signed-in person.
type page func(*Console, http.ResponseWriter, *http.Request, *session)

// Owns reports whether a path belongs to the console. This includes paths without a session, such as a bookmarked
// /agents. The console answers requests for these paths with the sign-in page.
func (c *Console) Owns(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return path == "/" || slices.Contains([]string{
		"assets", "login", "console", "agents", "approvals", "journal", "activity", "queue", "policy",
	}, first)
}

func (c *Console) notFound(w http.ResponseWriter, r *http.Request, s *session) {
	c.failed(w, r, s, http.StatusNotFound, "There is no page at this address.", "Use the menu above.")
}

// policyHeader is the content security policy. It allows the console's own files and forms, but no inline scripts or
// styles.
const policyHeader = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; " +
	"require-trusted-types-for 'script'; trusted-types ambit"

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policyHeader)
	// The path is secret, so referrers must contain only the origin. The value no-referrer cannot be used, because
	// browsers would then send "Origin: null" with the console's own forms.
	w.Header().Set("Referrer-Policy", "strict-origin")
	c.mux.ServeHTTP(w, r)
}

// view is the data that the template of every page gets.
type view struct {
	Title   string
	Base    string // the prefix of all links
	Here    string // the current menu entry
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
		http.Error(w, "this page cannot be shown; see the daemon's log for the reason", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = out.WriteTo(w) // the client may have disconnected
}

// failed shows an error page.
func (c *Console) failed(w http.ResponseWriter, r *http.Request, s *session, status int, what, hint string) {
	c.show(w, r, s, status, "error", what, "", map[string]string{"What": what, "Hint": hint})
}

// unavailable shows an error page and logs the error. The page does not contain the error.
func (c *Console) unavailable(w http.ResponseWriter, r *http.Request, s *session, what string, err error) {
	c.o.Log("console: %s: %v", what, err)
	c.failed(w, r, s, http.StatusServiceUnavailable, what, "See the daemon's log for the reason.")
}
