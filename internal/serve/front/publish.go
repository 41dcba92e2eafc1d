package front

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// event is something that clients may want to hear.
type event struct {
	method string
	params jsontext.Value
}

// ear is a listener. Events that it does not take in time are lost: every event
// means that something has changed, and looking once is enough.
type ear struct{ heard chan event }

const earSize = 256

func (a *Agent) listen() *ear {
	e := &ear{heard: make(chan event, earSize)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ears == nil {
		a.ears = map[*ear]bool{}
	}
	a.ears[e] = true
	return e
}

func (a *Agent) deafen(e *ear) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ears, e)
}

// Publish notifies every client that listens. It does not wait for any.
func (a *Agent) Publish(method string, params jsontext.Value) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := range a.ears {
		select {
		case e.heard <- event{method, params}:
		default:
		}
	}
}

// filter is what a client of the newer generation subscribes to.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

func (f *filter) wants(e event) bool {
	switch e.method {
	case "notifications/tools/list_changed":
		return f.Tools
	case "notifications/prompts/list_changed":
		return f.Prompts
	case "notifications/resources/list_changed":
		return f.Resources
	case "notifications/resources/updated":
		uri, _ := text(lookup(e.params, "uri"))
		return slices.Contains(f.URIs, uri)
	}
	return false
}

// filterOf is as much of what a client wants as it can have.
func (a *Agent) filterOf(wanted jsontext.Value) filter {
	is := func(name string) bool { return string(lookup(wanted, name)) == "true" }
	f := filter{
		Tools:     is("toolsListChanged"),
		Prompts:   is("promptsListChanged") && a.exposes(gateway.Prompts),
		Resources: is("resourcesListChanged") && a.exposes(gateway.Resources),
	}
	if a.exposes(gateway.Resources) {
		rawjson.Elements(lookup(wanted, "resourceSubscriptions"), func(value jsontext.Value) {
			if uri, ok := text(value); ok && len(f.URIs) < maxWatched {
				f.URIs = append(f.URIs, uri)
			}
		})
	}
	return f
}

// subscribed answers subscriptions/listen: with what happens, for as long as
// the client listens.
func (a *Agent) subscribed(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	wanted := lookup(r.Params, "notifications")
	if len(wanted) == 0 || wanted[0] != '{' {
		return nil, &rpcError{Code: invalidParams, Message: "subscriptions/listen needs an object notifications"}
	}
	f := a.filterOf(wanted)
	e := a.listen()
	defer a.deafen(e)
	if len(f.URIs) > 0 {
		if err := a.ready(ctx); err != nil {
			return nil, err
		}
	}
	watched := f.URIs
	f.URIs = nil
	for _, uri := range watched {
		begin := watching(r, "resources/subscribe", uri)
		alias, problem := a.holder(ctx, begin, uri)
		if problem != nil {
			continue // it is not among what is acknowledged
		}
		if _, err := a.Door.Forward(ctx, a.forward(begin, alias)); err != nil {
			continue
		}
		f.URIs = append(f.URIs, uri)
		defer func() {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), listWait)
			defer cancel()
			// To the same server, also if it is away: it would be asked again.
			_, _ = a.Door.Forward(ending, a.forward(watching(r, "resources/unsubscribe", uri), alias))
		}()
	}
	mark := set(jsontext.Value("{}"), metaSubscription, r.ID)
	tell := func(method string, params jsontext.Value) {
		if len(params) == 0 {
			params = jsontext.Value("{}")
		}
		tagged := mark
		if m := lookup(params, "_meta"); m != nil {
			tagged = set(m, metaSubscription, r.ID)
		}
		r.notify(method, set(params, "_meta", tagged))
	}
	tell("notifications/subscriptions/acknowledged", set(jsontext.Value("{}"), "notifications", marshal(f)))
	for f.Tools || f.Prompts || f.Resources || len(f.URIs) > 0 {
		select {
		case <-ctx.Done():
			return nil, nil
		case happened := <-e.heard:
			if f.wants(happened) {
				tell(happened.method, happened.params)
			}
		}
	}
	return set(jsontext.Value(`{"resultType":"complete"}`), "_meta", mark), nil
}
