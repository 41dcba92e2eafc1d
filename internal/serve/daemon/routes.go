package daemon

import (
	"net/http"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/docs/api"
)

// route is one address of the daemon. docs/api/openapi.json describes every
// route, and a test compares the two.
type route struct {
	method, path string
	// admin routes require an admin key.
	admin  bool
	answer http.HandlerFunc
}

func (d *Daemon) routes() []route {
	return []route{
		{method: "GET", path: "/healthz", answer: d.healthz},
		{method: "GET", path: "/readyz", answer: d.readyz},
		{method: "GET", path: "/metrics", answer: d.metrics},
		{method: "GET", path: resourceMetadata, answer: d.describeResource},
		{method: "GET", path: resourceMetadata + "/mcp/{name}", answer: d.describeResource},
		{method: "GET", path: "/mcp/{name}", answer: d.mcp},
		{method: "POST", path: "/mcp/{name}", answer: d.mcp},
		{method: "DELETE", path: "/mcp/{name}", answer: d.mcp},
		{method: "GET", path: "/api/v1/openapi.json", answer: d.openapi},
		{method: "GET", path: "/api/v1/whoami", answer: d.whoami},
		{method: "GET", path: "/api/v1/agents", answer: d.listAgents},
		{method: "GET", path: "/api/v1/agents/{name}", answer: d.showAgent},
		{method: "POST", path: "/api/v1/agents/{name}/call", answer: d.callTool},
		{method: "GET", path: "/api/v1/agents/{name}/ui", answer: d.uiTicket},
		{method: "GET", path: "/ui/{ticket}", answer: d.uiFrame},
		{method: "GET", path: "/ui/{ticket}/{path...}", answer: d.uiPage},
		{method: "GET", path: "/api/v1/journal", answer: d.showJournal},
		{method: "GET", path: "/api/v1/journal/checkpoint", answer: d.checkpoint},
		{method: "GET", path: "/api/v1/approvals", admin: true, answer: d.listApprovals},
		{method: "POST", path: "/api/v1/approvals/{id}", admin: true, answer: d.decideApproval},
		{method: "GET", path: "/api/v1/intents", answer: d.listIntents},
		{method: "POST", path: "/api/v1/intents", answer: d.postIntent},
		{method: "GET", path: "/api/v1/intents/{id}", answer: d.showIntent},
		{method: "POST", path: "/api/v1/intents/{id}/cancel", answer: d.cancelIntent},
		{method: "POST", path: "/api/v1/reload", admin: true, answer: d.reload},
		{method: "POST", path: "/api/v1/console", admin: true, answer: d.makeLink},
	}
}

// handler is the daemon's HTTP handler.
type handler struct {
	daemon *Daemon
	shield shield
	mux    *http.ServeMux
}

// Handler returns the handler of all requests to the daemon.
func (d *Daemon) Handler() http.Handler {
	h := &handler{daemon: d, mux: d.mux(), shield: shield{
		public: d.options.public, loopback: d.options.loopback, cross: http.NewCrossOriginProtection(),
	}}
	if d.options.Cert != "" {
		h.shield.cert = d.leaf
	}
	return h
}

// ServeHTTP checks a request with the shield and passes it to the console, or through
// authentication to its route.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if w = h.shield.admit(w, r); w == nil {
		return
	}
	if c := h.daemon.console.Load(); c != nil && c.Owns(r.URL.Path) {
		c.ServeHTTP(w, r)
		return
	}
	if r = h.daemon.authenticate(w, r); r == nil {
		return
	}
	if t := h.daemon.options.Trace; t != nil {
		// The fallback for unknown addresses has no method in its pattern, and no span.
		_, pattern := h.mux.Handler(r)
		if _, route, known := strings.Cut(pattern, " "); known {
			var end func()
			w, r, end = t.begin(w, r, route)
			defer end()
		}
	}
	h.mux.ServeHTTP(w, r)
}

func (d *Daemon) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range d.routes() {
		if strings.HasPrefix(r.path, resourceMetadata) && d.options.OIDC == nil {
			continue
		}
		if r.admin {
			r.answer = adminOnly(r.answer)
		}
		mux.HandleFunc(r.method+" "+r.path, r.answer)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{"GET", "POST", "DELETE"} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) > 0 && !slices.Contains(allowed, r.Method) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			(&problem{
				status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
				Message: "this address accepts " + strings.Join(allowed, " and ") + " only",
			}).write(w)
			return
		}
		(&problem{
			status: http.StatusNotFound, Code: "not_found", Message: "there is nothing at this address",
			Hint: "see GET /api/v1/openapi.json",
		}).write(w)
	})
	return mux
}

func adminOnly(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !principalOf(r).Admin {
			(&problem{
				status: http.StatusForbidden, Code: "forbidden", Message: "this needs an admin key",
				Hint: "create one with: ambit key new --admin",
			}).write(w)
			return
		}
		answer(w, r)
	}
}

// healthz reports that the process answers.
func (d *Daemon) healthz(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{"status": "ok"})
}

// readyz reports whether requests should be sent here: the initial proofs are complete, the daemon
// is not shutting down, and its root key is still in force.
func (d *Daemon) readyz(w http.ResponseWriter, r *http.Request) {
	handedOver := d.options.Journal.HandedOver()
	switch {
	case d.fleet.open.Err() != nil:
		leavingProblem().write(w)
	case handedOver != nil:
		(&problem{
			status: http.StatusServiceUnavailable, Code: "unavailable", Message: handedOver.Error(),
			Hint: "restart the daemon: until then it refuses every call",
		}).write(w)
	case !d.settled.Load():
		(&problem{status: http.StatusServiceUnavailable, Code: "starting", Message: "agents are still being proven"}).write(w)
	default:
		doc := map[string]any{"status": "ok"}
		d.addPolicyProblem(doc, r)
		reply(w, http.StatusOK, doc)
	}
}

// addPolicyProblem shows administrators why the user's policy is not in force.
func (d *Daemon) addPolicyProblem(doc map[string]any, r *http.Request) {
	if p := principalOf(r); d.options.PolicyProblem == nil || p == nil || !p.Admin {
		return
	}
	if problem := d.options.PolicyProblem(); problem != "" {
		doc["policy"] = problem
	}
}

func (d *Daemon) metrics(w http.ResponseWriter, r *http.Request) {
	// Metrics name every agent. With --metrics-open there is no principal.
	if principalOf(r) == nil || d.seesAll(w, r) {
		d.options.Metrics.handler().ServeHTTP(w, r)
	}
}

// seesAll reports whether a key covers all agents; otherwise it refuses the request.
func (d *Daemon) seesAll(w http.ResponseWriter, r *http.Request) bool {
	ok := principalOf(r).SeesAll()
	if !ok {
		(&problem{
			status: http.StatusForbidden, Code: "forbidden", Message: "this needs a key that is not limited to some agents",
		}).write(w)
	}
	return ok
}

func (d *Daemon) openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(api.OpenAPI) // the client may be gone
}

// mcp passes an MCP request to its agent.
func (d *Daemon) mcp(w http.ResponseWriter, r *http.Request) {
	p := principalOf(r)
	v, trouble := d.fleet.enter(r.PathValue("name"), p)
	if trouble != nil {
		trouble.write(w)
		return
	}
	defer v.leave()
	if isStream(r) {
		// A stream has no end of its own. It ends when the agent retires or its key is no longer
		// valid.
		ctx, stop := v.untilRetired(r.Context())
		defer stop()
		ctx, leave := d.streams.hold(ctx, p)
		defer leave()
		r = r.WithContext(ctx)
	}
	v.running.Serve(w, r, p.Name)
	if d.fleet.open.Err() != nil {
		// The response must leave before the streams end, which wait for this call.
		_ = http.NewResponseController(w).Flush() // the client may be gone
	}
}

// isStream reports whether a request only listens.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}
