package front

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

type event struct {
	method string
	params jsontext.Value
}

// subscriber receives events. If its queue is full, new events are dropped. The client still reads the new state when
// it receives an event from the queue.
type subscriber struct {
	events chan event
	// caller returns the caller whose list of tools the subscriber sees.
	caller func() *call.Call
	who    *agent.Agent
	hidden []bool // which tools were hidden from the caller at the last check
	policy any    // the version of the policy at the last check
	tick   *time.Ticker
	// signedIn returns the ids of the questions whose sign-ins are complete. The function may be nil.
	signedIn func() []string
	bytes    atomic.Int64 // the size of the params in the queue
}

const (
	maxQueued = 256
	// maxQueuedBytes limits the size of the params in one queue. Servers choose this size, and a client may never read its
	// stream.
	maxQueuedBytes = 256 << 10
)

// recheckLists is the interval at which the front checks whether a subscriber's list of tools has changed.
const recheckLists = 2 * time.Second

func (a *Agent) addSubscriber(caller func() *call.Call) *subscriber {
	s := &subscriber{events: make(chan event, maxQueued), caller: caller}
	s.who, s.hidden = a.Gateway.Listed(caller())
	s.policy = a.Gateway.PolicyVersion(caller())
	s.tick = time.NewTicker(cmp.Or(a.recheckLists, recheckLists))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.subscribers == nil {
		a.subscribers = map[*subscriber]bool{}
	}
	a.subscribers[s] = true
	return s
}

func (a *Agent) removeSubscriber(s *subscriber) {
	s.tick.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.subscribers, s)
}

// Publish sends a notification to every subscriber. It never blocks.
func (a *Agent) Publish(method string, params jsontext.Value) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.subscribers {
		s.add(event{method, params})
	}
}

// add adds an event to the queue, unless the queue is full.
func (s *subscriber) add(e event) {
	if s.bytes.Load()+int64(len(e.params)) > maxQueuedBytes {
		return
	}
	select {
	case s.events <- e:
		s.bytes.Add(int64(len(e.params)))
	default:
	}
}

// next waits for an event. It returns false when ctx is done. It also checks regularly whether the policy has changed,
// and whether the set of tools that are hidden from the caller has changed. If so, next adds events for the lists that
// the client must read again.
func (a *Agent) next(ctx context.Context, s *subscriber) (event, bool) {
	for {
		select {
		case <-ctx.Done():
			return event{}, false
		case e := <-s.events:
			s.bytes.Add(-int64(len(e.params)))
			return e, true
		case <-s.tick.C:
			if s.signedIn != nil {
				for _, id := range s.signedIn() {
					s.add(event{method: "notifications/elicitation/complete", params: marshal(map[string]string{"elicitationId": id})})
				}
			}
			if a.policyChanged(s) {
				for _, kind := range []string{gateway.Prompts, gateway.Resources} {
					if a.exposes(kind) || kind == gateway.Prompts && len(a.Prompts) > 0 {
						s.add(event{method: "notifications/" + kind + "/list_changed"})
					}
				}
			}
			if a.hidesOthers(s) {
				return event{method: "notifications/tools/list_changed"}, true
			}
		}
	}
}

// policyChanged reports whether the policy for the subscriber has changed since the last check. If so, the policy may
// hide other prompts and resources. The front does not compare these lists, because only the servers have them.
func (a *Agent) policyChanged(s *subscriber) bool {
	was := s.policy
	s.policy = a.Gateway.PolicyVersion(s.caller())
	return s.policy != was
}

// hidesOthers reports whether the set of tools that are hidden from the subscriber has changed. It returns false if the
// agent itself has changed, because the agent then announces the new list.
func (a *Agent) hidesOthers(s *subscriber) bool {
	who, hidden := a.Gateway.Listed(s.caller())
	was := s.hidden
	changed := who == s.who
	s.who, s.hidden = who, hidden
	if !changed {
		return false
	}
	for i := range who.Tools {
		if (was != nil && was[i]) != (hidden != nil && hidden[i]) {
			return true
		}
	}
	return false
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
// most maxWatched URIs, each at most maxURI bytes long.
func (a *Agent) filterOf(requested jsontext.Value) filter {
	is := func(name string) bool { return string(lookup(requested, name)) == "true" }
	f := filter{
		Tools:     is("toolsListChanged"),
		Prompts:   is("promptsListChanged") && a.exposes(gateway.Prompts),
		Resources: is("resourcesListChanged") && a.exposes(gateway.Resources),
	}
	if a.exposes(gateway.Resources) {
		rawjson.Elements(lookup(requested, "resourceSubscriptions"), func(value jsontext.Value) {
			if uri, ok := text(value); ok && len(uri) <= maxURI && len(f.URIs) < maxWatched {
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
	if problem := a.checkSkill(r); problem != nil {
		return nil, problem
	}
	f := a.filterOf(requested)
	s := a.addSubscriber(r.caller)
	defer a.removeSubscriber(s)
	if len(f.URIs) > 0 {
		if err := a.ready(ctx); err != nil {
			return nil, err
		}
	}
	watched := f.URIs
	f.URIs = nil
	var dropped sync.Map // the URIs that the client may no longer watch
	for _, uri := range watched {
		alias, problem := a.watch(ctx, r, "resources/subscribe", uri, func() { dropped.Store(uri, true) })
		if problem != nil {
			continue // the acknowledgement omits this resource
		}
		f.URIs = append(f.URIs, uri)
		defer func() {
			if _, ended := dropped.Load(uri); ended {
				return
			}
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
		e, ok := a.next(ctx, s)
		if !ok {
			return nil, nil
		}
		uri, _ := text(lookup(e.params, "uri"))
		if _, ended := dropped.Load(uri); f.matches(e) && !ended {
			notify(e.method, e.params)
		}
	}
	return set(jsontext.Value(`{"resultType":"complete"}`), "_meta", mark), nil
}
