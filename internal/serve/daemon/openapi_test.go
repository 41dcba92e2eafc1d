package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ambit-run/ambit/docs/api"
)

type openapiDoc struct {
	Paths      map[string]map[string]openapiOp `json:"paths"`
	Components struct {
		Responses map[string]openapiResponse `json:"responses"`
	} `json:"components"`
}

type openapiOp struct {
	OperationID string                     `json:"operationId"`
	Summary     string                     `json:"summary"`
	Security    *[]map[string]any          `json:"security"`
	Responses   map[string]openapiResponse `json:"responses"`
	Parameters  []struct{ Name, In string }
}

type openapiResponse struct {
	Ref     string                     `json:"$ref"`
	Content map[string]json.RawMessage `json:"content"`
}

func readOpenAPI() (*openapiDoc, error) {
	var doc openapiDoc
	err := json.Unmarshal(api.OpenAPI, &doc)
	return &doc, err
}

// openapi.json describes exactly the routes of the daemon.
func TestEveryRouteIsDescribed(t *testing.T) {
	doc, err := readOpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var described, served []string
	ids := map[string]bool{}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			described = append(described, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || op.Summary == "" || ids[op.OperationID] {
				t.Errorf("%s %s has no summary or no unique operationId", method, path)
			}
			ids[op.OperationID] = true
		}
	}
	for _, r := range new(Daemon).routes() {
		served = append(served, r.method+" "+r.path)
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described:\n%s\nserved:\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
}

// The addresses that require no key must be the same in the daemon and in openapi.json.
func TestOpenAsDescribed(t *testing.T) {
	doc, err := readOpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, nil, func(_ *rig, o *Options) { o.OIDC = noTokens{} })
	for path, ops := range doc.Paths {
		for method, op := range ops {
			open := false
			if op.Security != nil { // an empty entry means that the key is optional
				optional := func(one map[string]any) bool { return len(one) == 0 }
				open = len(*op.Security) == 0 || slices.ContainsFunc(*op.Security, optional)
			}
			a := r.ask("", strings.ToUpper(method), strings.ReplaceAll(path, "{name}", "x"), "")
			if got := a.status != http.StatusUnauthorized; got != open {
				t.Errorf("%s %s without a key: %d", method, path, a.status)
			}
		}
	}
}

// describedBy returns an error if an answer does not match openapi.json.
func describedBy(method, path string, status int, kind string, body []byte) error {
	doc, err := readOpenAPI()
	if err != nil {
		return err
	}
	name, ops := "", map[string]openapiOp(nil)
	for _, p := range slices.Sorted(maps.Keys(doc.Paths)) {
		if samePath(p, path) {
			name, ops = p, doc.Paths[p]
			break
		}
	}
	resp, ok := ops[strings.ToLower(method)].Responses[strconv.Itoa(status)]
	if !ok {
		// openapi.json does not repeat errors that every route can return.
		if slices.Contains([]int{401, 403, 404, 405, 413, 421}, status) {
			return validate("/components/schemas/Error", body)
		}
		return errors.New("openapi.json does not describe this answer")
	}
	at := "/paths/" + escape(name) + "/" + strings.ToLower(method) + "/responses/" + strconv.Itoa(status)
	if resp.Ref != "" {
		at = strings.TrimPrefix(resp.Ref, "#")
		resp = doc.Components.Responses[at[strings.LastIndexByte(at, '/')+1:]]
	}
	media, _, err := mime.ParseMediaType(kind)
	if err != nil || resp.Content[media] == nil {
		return fmt.Errorf("openapi.json does not describe the content type %q", kind)
	}
	if media != "application/json" {
		return nil
	}
	return validate(at+"/content/application~1json/schema", body)
}

func validate(pointer string, body []byte) error {
	s, err := openapiSchemas().Compile("openapi.json#" + pointer)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func escape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(s)
}

func samePath(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	return len(a) == len(b) && !slices.ContainsFunc(zip(a, b), func(p [2]string) bool {
		return p[0] != p[1] && !strings.HasPrefix(p[0], "{")
	})
}

func zip(a, b []string) [][2]string {
	out := make([][2]string, len(a))
	for i := range a {
		out[i] = [2]string{a[i], b[i]}
	}
	return out
}

// describedBy detects answers that do not match the description.
func TestDescribedBy(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		ok         bool
	}{
		"right":           {"/healthz", `{"status":"ok"}`, true},
		"another value":   {"/healthz", `{"status":"fine"}`, false},
		"an extra member": {"/healthz", `{"status":"ok","x":1}`, false},
		"missing members": {"/api/v1/agents", `{"agents":[{"name":"x"}]}`, false},
	} {
		if err := describedBy("GET", tt.path, 200, "application/json", []byte(tt.body)); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if describedBy("GET", "/healthz", 500, "application/json", []byte(`{}`)) == nil {
		t.Error("describedBy accepts a status that is not described")
	}
}
