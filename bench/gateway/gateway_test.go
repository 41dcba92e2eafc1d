package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/bench/calls"
	"github.com/ambit-run/ambit/bench/gateway/middle"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// BenchmarkGateway is meant for profiling. It runs the complete gateway in this process, between a plain HTTP client and
// a cheap tool server.
func BenchmarkGateway(b *testing.B) {
	for _, way := range []string{"read", "write"} {
		for _, size := range plan.Sizes {
			b.Run(fmt.Sprintf("%s/%d", way, size), func(b *testing.B) { benchGateway(b, way, size) })
		}
	}
}

func benchGateway(b *testing.B, way string, size int) {
	s := middle.Echo()
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: true})
	text := strings.Repeat("x", size)
	answer := `","result":{"content":[{"type":"text","text":"` + text + `"}]}}`
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"tools/call"`)) {
			r.Body = io.NopCloser(bytes.NewReader(body))
			sdk.ServeHTTP(w, r)
			return
		}
		_, rest, _ := bytes.Cut(body, []byte(`"id":`))
		id, _, _ := bytes.Cut(rest, []byte(`,`))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s%s`, id, answer[1:])
	}))
	defer upstream.Close()
	dir := b.TempDir()
	if err := calls.WriteAgents(dir, upstream.URL+"/mcp", os.Args[0]); err != nil {
		b.Fatal(err)
	}
	h := home.At(filepath.Join(dir, "home"))
	kept, err := store.OpenLong(context.Background(), h, "")
	if err != nil {
		b.Fatal(err)
	}
	defer kept.Close()
	metrics := daemon.NewMetrics()
	timed := *kept
	timed.DB = metrics.Timed(kept.DB)
	kept.Journal.Through(timed.DB)
	signIns := signin.New(h, credential.Open(h), egress.New(egress.Switches{}))
	signIns.ServeCallers(timed.DB, kept.Keys)
	hosting := &daemon.Hosting{
		Host: host.Options{Home: h, Store: &timed, Version: "bench", Flow: gateway.NewFlow(), SignIns: signIns}, HTTP: front.HTTPOptions{Keys: kept.Keys},
		Metrics: metrics, Log: func(string, string, string) {},
	}
	passing, secret := identity.NewPassingKey()
	d, err := daemon.New(daemon.Options{
		Folders: []string{dir}, Start: hosting.Start, APIKeys: identity.NewAPIKeys(kept.Authority), Passing: passing, Journal: kept.Journal,
		Metrics: metrics, Listen: "127.0.0.1:0", Log: func(string, ...any) {},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	d.Prove(context.Background())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(serving, l) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	}()
	post := func(session, body string) (string, []byte) {
		req, err := http.NewRequest(http.MethodPost, "http://"+l.Addr().String()+"/mcp/"+way+"s", strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return "", nil
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Error(err)
			return "", nil
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			b.Error(err)
		}
		return resp.Header.Get("Mcp-Session-Id"), text
	}
	session, _ := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}`)
	ask := `,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + text + `"}}}`
	var ids atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, got := post(session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d`, ids.Add(1))+ask); !bytes.Contains(got, []byte(text)) {
				b.Errorf("the answer does not contain the text: %.300s", got)
				return
			}
		}
	})
}
