package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stub serves many tool servers at one address. The server at /N has N tools.
type stub struct {
	url    string
	server *http.Server
	lists  sync.Map // the tools/list result (json.RawMessage) for each number of tools
}

func newStub() (*stub, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &stub{url: "http://" + l.Addr().String()}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

func (s *stub) close() { _ = s.server.Close() }

func toolName(n int) string { return fmt.Sprintf("tool_%05d", n) }

// list returns the result of tools/list for n tools.
func (s *stub) list(n int) json.RawMessage {
	if list, ok := s.lists.Load(n); ok {
		return list.(json.RawMessage)
	}
	var b strings.Builder
	b.WriteString(`{"tools":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"description":"Repeats its input, as number %d of its kind.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}`, toolName(i), i)
	}
	b.WriteString(`]}`)
	list := json.RawMessage(b.String())
	s.lists.Store(n, list)
	return list
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tools, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, "send a POST request to /N, where N is the number of tools", http.StatusMethodNotAllowed)
		return
	}
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			ProtocolVersion string `json:"protocolVersion"`
			Arguments       struct {
				Text string `json:"text"`
			} `json:"arguments"`
		} `json:"params"`
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil {
		http.Error(w, "the request is not JSON", http.StatusBadRequest)
		return
	}
	if q.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var result any
	switch q.Method {
	case "initialize":
		result = map[string]any{
			"protocolVersion": q.Params.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "stub", "version": "1.0.0"},
		}
	case "tools/list":
		result = s.list(tools)
	case "tools/call":
		result = map[string]any{"content": []any{map[string]any{"type": "text", "text": q.Params.Arguments.Text}}}
	case "ping":
		result = map[string]any{}
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": q.ID}
	if result == nil {
		answer["error"] = map[string]any{"code": -32601, "message": "there is no such method"}
	} else {
		answer["result"] = result
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
