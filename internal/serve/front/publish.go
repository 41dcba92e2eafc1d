package front

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

type event struct {
	method string
	params jsontext.Value
}

// subscriber receives events. If its buffer is full, new events are dropped. This is safe, because the events in the
// buffer will make the client read the new state.
type subscriber chan event

const subscriberBuffer = 256

func (a *Agent) addSubscriber() subscriber {
	s := make(subscriber, subscriberBuffer)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.subscribers == nil {
		a.subscribers = map[subscriber]bool{}
	}
	a.subscribers[s] = true
	return s
}

func (a *Agent) removeSubscriber(s subscriber) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.subscribers, s)
}

// Publish sends a notification to every subscriber. It never blocks.
func (a *Agent) Publish(method string, params jsontext.Value) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.subscribers {
		select {
		case s <- event{method, params}:
		default:
		}
	}
}

// filter describes which events a client of the newer protocol has subscribed to.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

func (f *filter) matches(e event) bool {
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

// filterOf returns the filter that a client requested, without the events that the agent does not expose. It keeps at
// most maxWatched URIs.
func (a *Agent) filterOf(requested jsontext.Value) filter {
	is := func(name string) bool { return string(lookup(requested, name)) == "true" }
	f := filter{
		Tools:     is("toolsListChanged"),
		Prompts:   is("promptsListChanged") && a.exposes(gateway.Prompts),
		Resources: is("resourcesListChanged") && a.exposes(gateway.Resources),
	}
	if a.exposes(gateway.Resources) {
		rawjson.Elements(lookup(requested, "resourceSubscriptions"), func(value jsontext.Value) {
			if uri, ok := text(value); ok && len(f.URIs) < maxWatched {
				f.URIs = append(f.URIs, uri)
			}
		})
	}
	return f
}

// listen answers subscriptions/listen with notifications until the client disconnects.
func (a *Agent) listen(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	requested := lookup(r.Params, "notifications")
	if len(requested) == 0 || requested[0] != '{' {
		return nil, &rpcError{Code: invalidParams, Message: r.Method + " requires the object params.notifications"}
	}
	f := a.filterOf(requested)
	s := a.addSubscriber()
	defer a.removeSubscriber(s)
	if len(f.URIs) > 0 {
		if err := a.ready(ctx); err != nil {
			return nil, err
		}
	}
	watched := f.URIs
	f.URIs = nil
	for _, uri := range watched {
		alias, problem := a.watch(ctx, r, "resources/subscribe", uri)
		if problem != nil {
			continue // the acknowledgement omits this resource
		}
		f.URIs = append(f.URIs, uri)
		defer func() {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), listWait)
			defer cancel()
			// Send the unsubscribe request to the same server even if the server is down. Otherwise, the subscription would be
			// renewed when the server restarts.
			_, _ = a.Gateway.Forward(ending, a.forward(watchRequest(r, "resources/unsubscribe", uri), alias))
		}()
	}
	mark := set(jsontext.Value("{}"), metaSubscription, r.ID)
	notify := func(method string, params jsontext.Value) {
		if len(params) == 0 {
			params = jsontext.Value("{}")
		}
		tagged := mark
		if m := lookup(params, "_meta"); m != nil {
			tagged = set(m, metaSubscription, r.ID)
		}
		r.notify(method, set(params, "_meta", tagged))
	}
	notify("notifications/subscriptions/acknowledged", set(jsontext.Value("{}"), "notifications", marshal(f)))
	for f.Tools || f.Prompts || f.Resources || len(f.URIs) > 0 {
		select {
		case <-ctx.Done():
			return nil, nil
		case e := <-s:
			if f.matches(e) {
				notify(e.method, e.params)
			}
		}
	}
	return set(jsontext.Value(`{"resultType":"complete"}`), "_meta", mark), nil
}
