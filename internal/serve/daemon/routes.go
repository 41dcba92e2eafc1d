package daemon

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ambit-run/ambit/docs/api"
	"github.com/ambit-run/ambit/internal/serve/front"
)

// route is a path of the daemon with its method and handler. A test checks that docs/api/openapi.json describes every
// route.
type route struct {
	method, path string
	admin        bool // set if the route requires an admin key
	answer       http.Handler
}

func (d *Daemon) routes() []route {
	return []route{
		{method: "GET", path: "/healthz", answer: jsonAnswer(d.healthz)},
		{method: "GET", path: "/readyz", answer: jsonAnswer(d.readyz)},
		{method: "GET", path: "/metrics", answer: http.HandlerFunc(d.metrics)},
		{method: "GET", path: resourceMetadata, answer: jsonAnswer(d.describeResource)},
		{method: "GET", path: resourceMetadata + "/mcp/{name}", answer: jsonAnswer(d.describeResource)},
		{method: "GET", path: "/mcp/{name}", answer: http.HandlerFunc(d.mcp)},
		{method: "POST", path: "/mcp/{name}", answer: http.HandlerFunc(d.mcp)},
		{method: "DELETE", path: "/mcp/{name}", answer: http.HandlerFunc(d.mcp)},
		{method: "GET", path: "/api/v1/openapi.json", answer: http.HandlerFunc(d.openapi)},
		{method: "GET", path: "/api/v1/whoami", answer: jsonAnswer(d.whoami)},
		{method: "GET", path: "/api/v1/agents", answer: jsonAnswer(d.listAgents)},
		{method: "GET", path: "/api/v1/agents/{name}", answer: jsonAnswer(d.showAgent)},
		{method: "POST", path: "/api/v1/agents/{name}/call", answer: jsonAnswer(d.callTool)},
		{method: "GET", path: "/api/v1/agents/{name}/ui", answer: jsonAnswer(d.uiTicket)},
		{method: "GET", path: "/ui/{ticket}", answer: http.HandlerFunc(d.uiFrame)},
		{method: "POST", path: "/ui/{ticket}", answer: jsonAnswer(d.uiCall)},
		{method: "GET", path: "/ui/{ticket}/{path...}", answer: http.HandlerFunc(d.uiPage)},
		{method: "GET", path: "/api/v1/journal", answer: jsonAnswer(d.showJournal)},
		{method: "GET", path: "/api/v1/journal/checkpoint", answer: jsonAnswer(d.checkpoint)},
		{method: "GET", path: "/api/v1/approvals", admin: true, answer: jsonAnswer(d.listApprovals)},
		{method: "POST", path: "/api/v1/approvals/{id}", admin: true, answer: jsonAnswer(d.decideApproval)},
		{method: "GET", path: "/api/v1/intents", answer: jsonAnswer(d.listIntents)},
		{method: "POST", path: "/api/v1/intents", answer: jsonAnswer(d.postIntent)},
		{method: "GET", path: "/api/v1/intents/{id}", answer: jsonAnswer(d.showIntent)},
		{method: "POST", path: "/api/v1/intents/{id}/cancel", answer: jsonAnswer(d.cancelIntent)},
		{method: "GET", path: "/api/v1/signins", answer: jsonAnswer(d.listSignIns)},
		{method: "POST", path: "/api/v1/signins", answer: jsonAnswer(d.newSignIn)},
		{method: "POST", path: "/api/v1/signins/complete", answer: jsonAnswer(d.completeSignIn)},
		{method: "DELETE", path: "/api/v1/signins/{agent}/{server}", answer: jsonAnswer(d.signOut)},
		{method: "POST", path: "/api/v1/reload", admin: true, answer: jsonAnswer(d.reload)},
		{method: "POST", path: "/api/v1/console", admin: true, answer: jsonAnswer(d.makeLink)},
	}
}

// handler is the daemon's HTTP handler.
type handler struct {
	daemon *Daemon
	shield shield
	mux    *http.ServeMux
}

// Handler returns the daemon's HTTP handler.
func (d *Daemon) Handler() http.Handler {
	h := &handler{daemon: d, mux: d.mux(), shield: shield{
		public: d.options.public, loopback: d.options.loopback, cross: http.NewCrossOriginProtection(),
	}}
	if d.options.Cert != "" {
		h.shield.cert = d.leaf
	}
	return h
}

// ServeHTTP first lets the shield check the request. Requests for the console go to the console, which has its own
// sessions. All other requests must authenticate.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bounded := h.shield.admit(w, r)
	if bounded == nil {
		return
	}
	w = bounded
	defer bounded.start() // net/http writes the rest of the response after ServeHTTP has returned
	if c := h.daemon.console.Load(); c != nil && c.Owns(r.URL.Path) {
		c.ServeHTTP(w, r)
		return
	}
	if r = h.daemon.authenticate(w, r); r == nil {
		return
	}
	caller := "" // all callers without a key, such as an agent's pages, share one limit
	if p := principalOf(r); p != nil {
		caller = p.Name
		if r.Body != nil {
			body := h.daemon.requestBytes.Body(p.Name, r.Body)
			defer body.Release()
			r.Body = body
		}
	}
	r = r.WithContext(front.WithAnswers(r.Context(), func(size int64) (func(), error) {
		return h.daemon.answerBytes.Take(caller, size)
	}))
	if t := h.daemon.options.Trace; t != nil {
		// Requests without a route are not traced. They match the pattern "/", which contains no method.
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
		mux.Handle(r.method+" "+r.path, r.answer)
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
			failure("method_not_allowed", "this address accepts only "+strings.Join(allowed, " and "), "").write(w)
			return
		}
		failure("not_found", "there is nothing at this address", "for all addresses, see GET /api/v1/openapi.json").write(w)
	})
	return mux
}

func adminOnly(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !principalOf(r).Admin {
			failure("forbidden", "this address requires an admin key",
				"ask an administrator to create an admin key with: ambit key new --admin").write(w)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// healthz always reports success, which shows that the process is running.
func (d *Daemon) healthz(_ *http.Request) (any, *problem) {
	return map[string]any{"status": "ok"}, nil
}

// readyz reports whether a load balancer should send requests to this daemon. The daemon is ready when every agent is
// verified or has failed. It is not ready during shutdown, after the root key was rotated, or while the store is
// unavailable. Without a key, the answer contains no details.
func (d *Daemon) readyz(r *http.Request) (any, *problem) {
	doc, trouble := d.readiness(r)
	if trouble != nil && principalOf(r) == nil {
		trouble = failure("unavailable", "the daemon is not ready", "send a key to see the reason")
	}
	return doc, trouble
}

func (d *Daemon) readiness(r *http.Request) (any, *problem) {
	handedOver := d.options.Journal.HandedOver()
	storeProblem := d.storeProblem()
	switch {
	case d.fleet.open.Err() != nil:
		return nil, leavingProblem()
	case handedOver != nil:
		return nil, failure("unavailable", handedOver.Error(), "restart the daemon; until then, it refuses every call")
	case !d.settled.Load():
		return nil, failure("starting", "agents are still starting", "")
	case storeProblem != nil && principalOf(r) != nil && principalOf(r).Admin:
		return nil, failure("unavailable", storeDown+": "+storeProblem.Error(), "the daemon continues when the store answers")
	case storeProblem != nil:
		return nil, failure("unavailable", storeDown, "send an admin key to see the reason")
	default:
		doc := map[string]any{"status": "ok"}
		d.addPolicyProblem(doc, r)
		return doc, nil
	}
}

// addPolicyProblem adds to doc the reason why the user's policy is not in force. It does nothing if the policy is in
// force or if the caller is not an administrator.
func (d *Daemon) addPolicyProblem(doc map[string]any, r *http.Request) {
	if p := principalOf(r); d.options.PolicyProblem == nil || p == nil || !p.Admin {
		return
	}
	if problem := d.options.PolicyProblem(); problem != "" {
		doc["policy"] = problem
	}
}

func (d *Daemon) metrics(w http.ResponseWriter, r *http.Request) {
	// The metrics contain the names of all agents, so the key must give access to all agents. With --metrics-open, the
	// request has no principal, and everyone is allowed to read the metrics.
	if principalOf(r) != nil {
		if trouble := requireAllAgents(r); trouble != nil {
			trouble.write(w)
			return
		}
	}
	promhttp.HandlerFor(d.options.Metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// requireAllAgents returns a problem if the request's key is limited to certain agents.
func requireAllAgents(r *http.Request) *problem {
	if principalOf(r).SeesAll() {
		return nil
	}
	return failure("forbidden", "this address requires a key that is not limited to certain agents",
		"to create such a key, run: ambit key new --name NAME --all")
}

func (d *Daemon) openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(api.OpenAPI) // the client may be gone
}

// mcp passes an MCP request to its agent.
func (d *Daemon) mcp(w http.ResponseWriter, r *http.Request) {
	p := principalOf(r)
	v, trouble := d.enter(r, r.PathValue("name"))
	if trouble != nil {
		trouble.write(w)
		return
	}
	defer v.leave()
	// A stream is closed when the agent retires or when the caller's key becomes invalid.
	ctx := front.WithStreams(r.Context(), func(ctx context.Context) (context.Context, func()) {
		ctx, stop := v.untilRetired(ctx)
		ctx, leave := d.hold(ctx, p)
		return ctx, func() {
			leave()
			stop()
		}
	})
	v.running.Serve(w, r.WithContext(ctx), p.Name, p.Attributes())
	if d.fleet.open.Err() != nil {
		// During shutdown, the daemon may close the connection as soon as this handler returns. The response must be sent
		// before that.
		_ = http.NewResponseController(w).Flush() // the client may be gone
	}
}
