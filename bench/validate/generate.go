package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// generate writes manifests of all dialects and returns their total size in bytes. Every call writes the same
// manifests. One in ten breaks a rule that a JSON Schema can express.
func generate(folder string, count int) (size int, err error) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range count {
		bad := i%10 == 9
		dialect := []string{"matrix", "gpars", "covenant", "findagent"}[i%4]
		name, text := fmt.Sprintf("%s-%05d.json", dialect, i), []byte(nil)
		switch dialect {
		case "matrix":
			text = indented(matrixManifest(rnd, i, bad))
		case "gpars":
			text = indented(gparsManifest(rnd, i, bad))
		case "covenant":
			name, text = fmt.Sprintf("%s-%05d.toml", dialect, i), covenantManifest(rnd, i, bad)
		case "findagent":
			text = indented(findagentManifest(rnd, i, bad))
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return 0, err
		}
		size += len(text)
	}
	return size, nil
}

type object = map[string]any

func indented(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // Encode never fails for these values
	}
	return b.Bytes()
}

var verbs = []string{"read", "write", "list", "search", "delete", "create", "update", "fetch", "move", "copy"}

func tools(rnd *rand.Rand, n int) []object {
	classes := []string{"read", "write", "network", "shell"}
	var out []object
	for i := range n {
		out = append(out, object{
			"name":              fmt.Sprintf("%s_%d", verbs[rnd.IntN(len(verbs))], i),
			"description":       "Does one thing with a file, a record or a page, and reports the result.",
			"side_effect_class": classes[rnd.IntN(len(classes))],
		})
	}
	return out
}

func matrixManifest(rnd *rand.Rand, i int, bad bool) object {
	var servers []object
	for s := range 1 + rnd.IntN(3) {
		version := fmt.Sprintf("%d.%d.%d", rnd.IntN(9), rnd.IntN(30), rnd.IntN(30))
		servers = append(servers, object{
			"alias": fmt.Sprintf("server-%d", s), "transport": "stdio", "command": "npx",
			"args": []string{"-y", "@example/server@" + version, "/workspace"},
			"env":  []string{"TOKEN=$env:EXAMPLE_TOKEN"}, "version": version,
			"package_digest": fmt.Sprintf("sha256:%064x", rnd.Uint64()),
			"tools":          tools(rnd, 3+rnd.IntN(8)),
		})
	}
	m := object{
		"schema_version": 1, "agent": fmt.Sprintf("matrix://agent/agent-%d", i),
		"description":          "An agent that works with files and records, made up for measuring.",
		"allowed_side_effects": []string{"read", "write"}, "servers": servers,
	}
	if bad {
		servers[0]["transport"] = "carrier-pigeon"
	}
	return m
}

func gparsManifest(rnd *rand.Rand, i int, bad bool) object {
	entries := func(n int) []object {
		var out []object
		for s := range n {
			out = append(out, object{
				"server_id":         fmt.Sprintf("registry.openmcp.org/server-%d-%d", n, s),
				"version":           fmt.Sprintf(">=%d.%d.0", rnd.IntN(5), rnd.IntN(20)),
				"permission_scopes": []string{"read", "write", "execute"}[:1+rnd.IntN(3)],
			})
		}
		return out
	}
	m := object{
		"id": fmt.Sprintf("org:example/agent:agent-%d", i), "version": "1.2.3",
		"required_mcp_servers": entries(1 + rnd.IntN(5)), "optional_mcp_servers": entries(6),
	}
	if bad {
		m["unknown_field"] = true
	}
	return m
}

func covenantManifest(rnd *rand.Rand, i int, bad bool) []byte {
	runtime := []string{"rust-bin", "python3", "node"}[rnd.IntN(3)]
	if bad {
		runtime = "cobol"
	}
	return fmt.Appendf(nil, `[agent]
id      = "agent-%d@local"
name    = "agent-%d"
version = "0.%d.0"
runtime = %q
entry   = "bin/agent"

[capabilities]
required = ["tool.web_search", "tool.files"]
optional = ["memory.write"]

[resources]
cpu_ms_per_task = %d
memory_mb       = 512
disk_mb         = 100
network         = "outbound-https-only"

[settlement]
budget_credits_per_hour = 1000
priority                = "normal"
`, i, i, rnd.IntN(20), runtime, 1000+rnd.IntN(60000))
}

func findagentManifest(rnd *rand.Rand, i int, bad bool) object {
	var list []object
	for t := range 1 + rnd.IntN(6) {
		list = append(list, object{
			"name": fmt.Sprintf("%s_%d", verbs[rnd.IntN(len(verbs))], t), "description": "Fetch a summary for a range of dates.",
			"input_schema": object{
				"type": "object",
				"properties": object{
					"range": object{"type": "string", "description": "The range of dates."},
					"limit": object{"type": "integer", "minimum": 1, "maximum": 100},
				},
				"required": []string{"range"},
			},
			"annotations": object{"readOnlyHint": true},
			"action":      object{"type": "http", "method": "GET", "url": "https://api.example.com/v1/traffic?range={range}", "auth_ref": "token"},
		})
	}
	m := object{
		"name": fmt.Sprintf("Agent %d", i), "description": "Pulls a traffic summary and writes it to a sheet.",
		"system_prompt": "You are a focused analytics assistant. Answer with the numbers first, then one sentence on what they mean.",
		"kind":          "mcp-tool", "category": "analytics", "tools": list,
		"credential_slots": []object{{"ref": "token", "label": "Analytics API token", "env": "ANALYTICS_TOKEN", "allowed_hosts": []string{"api.example.com"}}},
		"guardrails": object{
			"input":   object{"max_length": 20000, "deny_patterns": []string{"ignore (all )?previous instructions"}, "pii_redaction": []string{"email", "phone"}},
			"output":  object{"secret_leak_scan": true},
			"actions": object{list[0]["name"].(string): object{"approval": "none", "rate_limit": "10/hour", "idempotent": true}},
		},
		"example_prompts": []string{"Summarize last week's traffic."},
		"delivery":        object{"mcp": object{"stdio": object{"command": "findagent-mcp", "args": []string{"run", "agent"}}}},
		"exec":            "user-local", "targets": []string{"claude-desktop", "cursor", "cli"},
	}
	if bad {
		m["exec"] = "on-the-moon"
	}
	return m
}
