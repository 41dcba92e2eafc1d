package toolserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// orders are phrases with which a tool's description tries to give orders to
// the model that reads it. The list is precise and cheap, and no proof.
var orders = regexp.MustCompile(`(?i)(ignore|disregard|forget|override)\s+(\w+\s+){0,3}(previous|prior|above|earlier|preceding|system)\b` +
	`|do not (tell|inform|mention|show|reveal)\b.{0,40}\buser` +
	`|<\s*/?\s*(important|system|instructions?|secret)\s*>` +
	`|\b(before|after) (using|calling) (this|any other) tool\b.{0,80}\b(read|send|call|include)`)

// maxWarnings bounds those about one tool.
const maxWarnings = 10

// hiddenInstructions looks through every text of a definition for what people
// do not see and for orders to the model.
func hiddenInstructions(name string, raw []byte) []string {
	var definition any
	if json.Unmarshal(raw, &definition) != nil {
		return nil // whoever hashes it will say so
	}
	var warnings []string
	walk(definition, "", func(path, text string) {
		if len(warnings) >= maxWarnings {
			return // these will do to look at it
		}
		if what := diag.Hidden(text); what != "" {
			warnings = append(warnings, fmt.Sprintf("tool %s: %s holds %s", diag.Quote(name), path, what))
		}
		if m := orders.FindString(text); m != "" {
			warnings = append(warnings, fmt.Sprintf("tool %s: %s gives orders to the model: %s", diag.Quote(name), path, diag.Quote(m)))
		}
	})
	return warnings
}

func walk(v any, path string, visit func(path, text string)) {
	switch v := v.(type) {
	case string:
		visit(strings.TrimPrefix(path, "."), v)
	case []any:
		for i, item := range v {
			walk(item, cutPath(fmt.Sprintf("%s[%d]", path, i)), visit)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			visit(strings.TrimPrefix(path, ".")+" (a key)", key)
			walk(v[key], below(path, key), visit)
		}
	}
}

// maxPath bounds a path. Every level that is being looked at has its own, and the
// keys are the server's, so that long ones would add up to far more than it sent.
const maxPath = 200

func below(path, key string) string {
	return cutPath(path + "." + diag.Cut(key, maxPath))
}

func cutPath(path string) string {
	if len(path) > maxPath {
		return diag.Cut(path, maxPath) + "…"
	}
	return path
}
