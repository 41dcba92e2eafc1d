package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ambit-run/ambit/bench/plot/chart"
)

// active is the number of agents that are called. All other agents are idle.
const active = 100

// growAgents measures daemons with more and more agents, of which a fixed number is called.
func growAgents(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	var up, ready, rss, list, call, cpu, idle chart.Line
	up.Name, ready.Name, rss.Name, list.Name = "listening", "all agents proven", "resident", "list of agents p50"
	call.Name, cpu.Name, idle.Name = "call p50", "daemon's CPU of a call", "daemon's CPU in an idle minute"
	for _, n := range sizes {
		dir := filepath.Join(s.dir, fmt.Sprint(n))
		for i := range n {
			if err := s.writeAgent(dir, agentName(i), 3); err != nil {
				return chart.Chart{}, err
			}
		}
		d, err := s.serve(ctx, dir, n)
		if err != nil {
			return chart.Chart{}, err
		}
		err = func() error {
			defer d.close()
			up.Add(n, ms(d.up))
			ready.Add(n, ms(d.ready))
			rss.Add(n, mib(d.memory()))
			var agents struct{ Agents []struct{ Name string } }
			took, err := median(5, func(int) error { return d.get(ctx, "/api/v1/agents", &agents) })
			if err != nil {
				return err
			}
			list.Add(n, ms(took))
			clients := make([]*session, min(n, active))
			for i := range clients {
				// The active agents are spread over all agents.
				if clients[i], err = d.connect(ctx, agentName(i*n/len(clients))); err != nil {
					return err
				}
			}
			const calls = 4000
			before := d.used()
			if took, err = median(calls, func(i int) error { return clients[i%len(clients)].call(ctx, toolName(i%3)) }); err != nil {
				return err
			}
			call.Add(n, ms(took))
			cpu.Add(n, ms(d.used()-before)/calls)
			before = d.used()
			time.Sleep(s.idle)
			idle.Add(n, max(ms(d.used()-before), ms(tick))*time.Minute.Seconds()/s.idle.Seconds())
			return nil
		}()
		if err != nil {
			return chart.Chart{}, err
		}
	}
	return chart.Chart{
		Title: "Agents in one daemon, each with an HTTP server of three tools; 100 of them are called", X: "agents",
		Command: "bench/run growth -only agents",
		Panels: []chart.Panel{
			{Title: "Start-up", Unit: "ms", Log: true, Lines: []chart.Line{up, ready, list}},
			{Title: "Memory", Unit: "MiB", Log: true, Lines: []chart.Line{rss}},
			{Title: "Calls to 100 agents", Unit: "ms", Log: true, Lines: []chart.Line{call, cpu}},
			{Title: "Idle", Unit: "ms", Log: true, Lines: []chart.Line{idle}},
		},
	}, nil
}

func agentName(i int) string { return fmt.Sprintf("agent-%05d", i) }

// growTools measures agents with more and more tools.
func growTools(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	var list, call, ready, rss chart.Line
	list.Name, call.Name, ready.Name, rss.Name = "tools/list p50", "call p50", "agent proven", "resident"
	for _, n := range sizes {
		dir := filepath.Join(s.dir, fmt.Sprint(n))
		if err := s.writeAgent(dir, "many", n); err != nil {
			return chart.Chart{}, err
		}
		d, err := s.serve(ctx, dir, 1)
		if err != nil {
			return chart.Chart{}, err
		}
		err = func() error {
			defer d.close()
			client, err := d.connect(ctx, "many")
			if err != nil {
				return err
			}
			took, err := median(21, func(int) error { return client.listAll(ctx, n) })
			if err != nil {
				return err
			}
			list.Add(n, ms(took))
			if took, err = median(401, func(i int) error { return client.call(ctx, toolName(i*7919%n)) }); err != nil {
				return err
			}
			call.Add(n, ms(took))
			ready.Add(n, ms(d.ready))
			rss.Add(n, mib(d.memory()))
			return nil
		}()
		if err != nil {
			return chart.Chart{}, err
		}
	}
	return chart.Chart{
		Title: "Tools in one agent", X: "tools", Command: "bench/run growth -only tools",
		Panels: []chart.Panel{{Title: "Time", Unit: "ms", Log: true, Lines: []chart.Line{list, call, ready}}, {Title: "Memory", Unit: "MiB", Log: true, Lines: []chart.Line{rss}}},
	}, nil
}

// listAll reads all pages of the tool list and checks the number of tools.
func (s *session) listAll(ctx context.Context, want int) error {
	n, params := 0, `{}`
	for {
		text, err := s.ask(ctx, "tools/list", params)
		if err != nil {
			return err
		}
		n += bytes.Count(text, []byte(`"inputSchema"`))
		_, rest, more := bytes.Cut(text, []byte(`"nextCursor":`))
		if !more {
			break
		}
		cursor, _, _ := bytes.Cut(rest[1:], []byte(`"`))
		params = fmt.Sprintf(`{"cursor":%q}`, cursor)
	}
	if n != want {
		return fmt.Errorf("tools/list has %d tools, want %d", n, want)
	}
	return nil
}

// median returns the median duration of n calls of f, after one call that does not count.
func median(n int, f func(int) error) (time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for i := range n + 1 {
		start := time.Now()
		if err := f(i); err != nil {
			return 0, err
		}
		if i > 0 {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	return took[n/2], nil
}

// crowded is the number of agents that the clients share. A principal can have at most 1,000 open sessions with an agent.
const crowded = 6

// growClients measures more and more concurrent clients.
func growClients(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	var rate, p50, p99, cpu, rss chart.Line
	rate.Name, p50.Name, p99.Name, cpu.Name, rss.Name = "calls", "p50", "p99", "daemon's CPU", "resident"
	dir := filepath.Join(s.dir, "agents")
	for i := range crowded {
		if err := s.writeAgent(dir, agentName(i), 3); err != nil {
			return chart.Chart{}, err
		}
	}
	d, err := s.serve(ctx, dir, crowded)
	if err != nil {
		return chart.Chart{}, err
	}
	defer d.close()
	for _, n := range sizes {
		took, span, used, err := crowd(ctx, d, n, s.span)
		if err != nil {
			return chart.Chart{}, err
		}
		cpu.Add(n, ms(used)/float64(len(took)))
		rate.Add(n, float64(len(took))/span.Seconds())
		p50.Add(n, ms(took[len(took)/2]))
		p99.Add(n, ms(took[len(took)*99/100]))
		rss.Add(n, mib(d.memory()))
	}
	return chart.Chart{
		Title: "Clients at once, each with a session", X: "clients", Command: "bench/run growth -only clients",
		Panels: []chart.Panel{
			{Title: "Throughput", Unit: "calls/s", Lines: []chart.Line{rate}},
			{Title: "One call", Unit: "ms", Log: true, Lines: []chart.Line{p50, p99, cpu}},
			{Title: "Memory", Unit: "MiB", Lines: []chart.Line{rss}},
		},
	}, nil
}

// crowd makes concurrent calls from n clients for the given time, and at least one call from each. It returns the sorted
// durations of the calls, the elapsed time, and the daemon's CPU time.
func crowd(ctx context.Context, d *daemon, n int, span time.Duration) (_ []time.Duration, took, used time.Duration, _ error) {
	clients := make([]*session, n)
	for i := range clients {
		c, err := d.connect(ctx, agentName(i%crowded))
		if err == nil {
			err = c.call(ctx, toolName(0))
		}
		if err != nil {
			return nil, 0, 0, err
		}
		clients[i] = c
	}
	times, failed := make([][]time.Duration, n), make([]error, n)
	var wg sync.WaitGroup
	start, before := time.Now(), d.used()
	for i, c := range clients {
		wg.Go(func() {
			for len(times[i]) == 0 || time.Since(start) < span && failed[i] == nil {
				began := time.Now()
				failed[i] = c.call(ctx, toolName(i%3))
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	took, used = time.Since(start), d.used()-before
	for _, err := range failed {
		if err != nil {
			return nil, 0, 0, err
		}
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	return all, took, used, nil
}
