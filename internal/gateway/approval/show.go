package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Larger or deeper values are not indented, because indentation could make the text a hundred times as long.
const (
	maxIndented = 64 << 10
	maxDepth    = 16
)

// Show indents JSON and escapes characters that a person cannot see, such as those that reverse the direction of text.
func Show(raw []byte) string {
	var out bytes.Buffer
	if len(raw) > maxIndented || rawjson.Deeper(raw, maxDepth) || json.Indent(&out, raw, "", "  ") != nil {
		return diag.Printable(string(raw))
	}
	lines := strings.Split(out.String(), "\n")
	for i, line := range lines {
		lines[i] = diag.Printable(line)
	}
	return strings.Join(lines, "\n")
}

const maxLookAlikes = 5

// LookAlikes returns a warning for each word of a question that looks like another word. After maxLookAlikes words,
// the last warning reports that there are more.
func LookAlikes(tool, arguments string) (warnings []string) {
	for i, l := range view.LookAlikes(tool+" "+arguments, maxLookAlikes+1) {
		if i == maxLookAlikes {
			return append(warnings, "there are more such words; check every word")
		}
		warnings = append(warnings, fmt.Sprintf("%s looks like %s, but is written with other letters",
			diag.Quote(l.Word), diag.Quote(l.Reads)))
	}
	return warnings
}
