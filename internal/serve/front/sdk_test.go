package front

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestSDKClient serves an agent to the client of the Go SDK, in both protocol generations.
func TestSDKClient(t *testing.T) {
	for _, version := range []string{"", "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
		t.Run("asks for "+version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := &stage{began: make(chan string, 1), release: make(chan struct{}), gone: make(chan struct{}, 1)}
			a := testAgent(t, s)
			gated(t)(a)
			in, toIn := io.Pipe()
			fromOut, out := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- ServeStdio(ctx, a, "me@local", in, out)
				out.Close()
			}()
			progress := make(chan *mcp.ProgressNotificationParams, 10)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params },
			})
			session, err := client.Connect(ctx, &mcp.IOTransport{Reader: fromOut, Writer: toIn}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			hello := session.InitializeResult()
			if want := version; want != "" && hello.ProtocolVersion != want || version == "" && hello.ProtocolVersion != newerRevision {
				t.Errorf("the protocol version is %s", hello.ProtocolVersion)
			}
			if hello.ServerInfo == nil || hello.ServerInfo.Name != "ambit/x" || hello.Instructions != "Reads <files> & more." {
				t.Errorf("the result of initialize is %+v", hello)
			}
			list, err := session.ListTools(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
			}
			if got := strings.Join(names, " "); got != "read fs_list fail ask work wait refuse db_list" {
				t.Errorf("the tools are %s", got)
			}
			result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "db_list", Arguments: map[string]any{}})
			if err == nil {
				t.Errorf("the SDK accepted content of an unknown type: %+v", result)
			}
			result, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "write"})
			if err != nil || !result.IsError || !strings.Contains(result.Content[0].(*mcp.TextContent).Text, "side_effect_denied") {
				t.Errorf("the tool write returned %+v, %v", result, err)
			}
			params := &mcp.CallToolParams{Name: "work", Arguments: map[string]any{}}
			params.SetProgressToken("mine")
			if result, err = session.CallTool(ctx, params); err != nil || result.IsError {
				t.Errorf("the tool work returned %+v, %v", result, err)
			}
			if p := <-progress; p.ProgressToken != "mine" || p.Progress != 1.5 {
				t.Errorf("the progress notification is %+v", p)
			}
			hanging, giveUp := context.WithCancel(ctx)
			go func() {
				<-s.began
				giveUp()
			}()
			if _, err := session.CallTool(hanging, &mcp.CallToolParams{Name: "wait"}); err == nil {
				t.Error("a cancelled call was answered")
			}
			<-s.gone // the SDK sends the cancellation asynchronously
			if err := session.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
