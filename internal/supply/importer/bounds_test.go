package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file with very many servers, arguments or unknown fields is refused, because the work of an import grows with the
// square of their number.
func TestWorkIsBounded(t *testing.T) {
	repeat := func(n int, of string) string {
		var parts []string
		for i := range n {
			parts = append(parts, strings.ReplaceAll(of, "#", fmt.Sprint(i)))
		}
		return strings.Join(parts, ",")
	}
	const server = `"command":"npx","args":["-y","pkg"`
	for name, tt := range map[string]struct{ servers, want string }{
		"servers":            {repeat(maxServers+1, `"s#":{`+server+`]}`), "the file has 101 servers"},
		"arguments":          {`"s":{` + server + `,` + repeat(maxParts, `"aB3$xZ9!#"`) + `]}`, "has 502 arguments"},
		"settings":           {`"s":{` + server + `],"env":{` + repeat(maxParts, `"K#":"v"`) + `}}`, "has 502 arguments"},
		"fields":             {`"s":{` + server + `],` + repeat(maxNotes+1, `"f#":1`) + `}`, "more than 2000 notes"},
		"arguments together": {repeat(20, `"s#":{`+server+`,`+strings.ReplaceAll(repeat(400, `"aB3$xZ9!@x#"`), "@", "y")+`]}`), "more than 2000 notes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mcp.json")
			if err := os.WriteFile(path, []byte(`{"mcpServers":{`+tt.servers+`}}`), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Import(path, "."); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
