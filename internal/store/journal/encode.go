package journal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// These limits bound the size of a record in bytes. Longer strings are truncated, and larger arguments are omitted.
// The size and the MAC of the arguments are always recorded.
const (
	maxText      = 4 << 10
	maxArguments = 256 << 10
	maxActions   = 100 // the maximum number of names in each list of capabilities
	maxAction    = 256
	// MaxRecord is an upper bound on the size of a record.
	MaxRecord = 1 << 20
	// headSize is an upper bound on the size of a record's head.
	headSize = 64
)

// appendHead appends the head of a record. The head is the first part of the record's JSON and contains the record's
// position. Verify checks that every record begins with the head for its position.
func appendHead(b []byte, log, seq int64) []byte {
	b = append(b, `{"log":`...)
	b = strconv.AppendInt(b, log, 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, seq, 10)
	return append(b, ',')
}

// appendBody appends the rest of a record's JSON. The result is the same JSON that encoding/json would produce.
// appendBody avoids reflection, because it runs for every call.
func appendBody(b []byte, r *Record) []byte {
	if r.Kind != "" {
		b = appendText(b, `"kind":`, r.Kind)
		b = append(b, ',')
	}
	b = append(b, `"time":"`...)
	b = r.Time.UTC().Truncate(time.Microsecond).AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	if r.Roster != nil {
		b = append(b, `,"roster":{"log":`...)
		b = strconv.AppendInt(b, r.Roster.Log, 10)
		b = appendInt(b, `,"size":`, r.Roster.Size)
		if r.Roster.Root != nil {
			b = appendText(b, `,"root":`, r.Roster.Root.String())
		}
		b = append(b, '}')
		b = appendSome(b, `,"principal":`, r.Principal)
	}
	if h := r.Handover; h != nil {
		text, err := json.Marshal(h)
		if err != nil {
			panic(err) // cannot happen, because h contains only numbers and strings
		}
		b = append(append(b, `,"handover":`...), text...)
	}
	if e := r.Erasure; e != nil {
		b = appendText(b, `,"erasure":{"key":`, e.Key)
		b = appendText(b, `,"by":`, base64.StdEncoding.EncodeToString(e.By))
		b = append(b, '}')
	}
	if r.Kind == "" {
		b = appendText(b, `,"call":`, r.Call)
		b = appendSome(b, `,"parent":`, r.Parent)
		b = appendText(b, `,"agent":`, r.Agent)
		b = appendText(b, `,"id":`, r.ID)
		b = appendText(b, `,"digest":`, r.Digest)
		b = appendText(b, `,"principal":`, r.Principal)
		b = appendSome(b, `,"by":`, r.By)
		b = appendCapabilities(b, r.Capabilities)
		b = appendText(b, `,"tool":`, r.Tool)
		b = appendSome(b, `,"uri":`, r.URI)
		b = appendSome(b, `,"side_effect":`, r.SideEffect)
		b = appendText(b, `,"decision":`, string(r.Decision))
		b = appendSome(b, `,"code":`, r.Code)
		b = appendSome(b, `,"stage":`, r.Stage)
		b = appendSome(b, `,"effect":`, r.Effect)
		b = appendSome(b, `,"detail":`, r.Detail)
		b = appendArguments(b, r.Arguments)
		b = appendSome(b, `,"arguments_mac":`, r.ArgumentsMAC)
		b = appendSize(b, `,"arguments_size":`, int64(r.ArgumentsSize))
		b = appendSome(b, `,"result_hash":`, r.ResultHash)
		b = appendSize(b, `,"result_size":`, int64(r.ResultSize))
		if r.ToolError {
			b = append(b, `,"tool_error":true`...)
		}
		b = appendSize(b, `,"duration_us":`, r.DurationUS)
		b = appendSome(b, `,"replay":`, r.Replay)
		b = appendSome(b, `,"approval":`, r.Approval)
		b = appendOrigins(appendObserved(b, r), r)
	}
	return append(b, '}')
}

// appendCapabilities appends the lists of capabilities. Long lists and names are truncated, because a manifest can
// contain lists and names of any length.
func appendCapabilities(b []byte, c *Capabilities) []byte {
	if c == nil {
		return b
	}
	b = append(b, `,"capabilities":{`...)
	first := true
	for _, part := range []struct {
		key     string
		actions []string
	}{{`"required":[`, c.Required}, {`"optional":[`, c.Optional}, {`"held":[`, c.Held}} {
		if len(part.actions) == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, part.key...)
		for i, action := range part.actions[:min(len(part.actions), maxActions)] {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, "", action[:min(len(action), maxAction)])
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendObserved appends the hosts that the tool's server contacted, and what the server's sandbox refused.
func appendObserved(b []byte, r *Record) []byte {
	for i, host := range r.Contacted[:min(len(r.Contacted), maxActions)] {
		b = appendText(b, between(i, `,"contacted":[`), host[:min(len(host), maxAction)])
	}
	if len(r.Contacted) > 0 {
		b = append(b, ']')
	}
	for i, d := range r.Refused[:min(len(r.Refused), maxActions)] {
		b = appendText(b, between(i, `,"refused":[`)+`{"kind":`, d.Kind)
		b = appendText(b, `,"what":`, d.What[:min(len(d.What), maxAction)])
		if d.Private {
			b = append(b, `,"private":true`...)
		}
		b = append(b, '}')
	}
	if len(r.Refused) > 0 {
		b = append(b, ']')
	}
	return appendSize(b, `,"omitted":`, int64(r.Omitted))
}

func appendOrigins(b []byte, r *Record) []byte {
	for i, o := range r.Origins[:min(len(r.Origins), maxActions)] {
		b = appendText(b, between(i, `,"origins":[`)+`{"reason":`, o.Reason)
		b = appendSome(b, `,"argument":`, o.Argument[:min(len(o.Argument), maxAction)])
		b = appendSome(b, `,"call":`, o.Call)
		b = append(appendSome(b, `,"value_mac":`, o.ValueMAC), '}')
	}
	if len(r.Origins) > 0 {
		b = append(b, ']')
	}
	return b
}

// between returns the text before element i of a list.
func between(i int, first string) string {
	if i == 0 {
		return first
	}
	return ","
}

// appendArguments appends the arguments of a call. A record must be valid JSON on one line. Invalid JSON is therefore
// quoted, and line breaks are removed.
func appendArguments(b []byte, args json.RawMessage) []byte {
	if len(args) == 0 || len(args) > maxArguments {
		return b
	}
	switch {
	case !jsontext.Value(args).IsValid(jsontext.AllowDuplicateNames(true)):
		return appendText(b, `,"arguments":`, string(args))
	case bytes.IndexByte(args, '\n') >= 0 || bytes.IndexByte(args, '\r') >= 0:
		var one bytes.Buffer
		if json.Compact(&one, args) != nil {
			return b
		}
		args = one.Bytes()
	}
	b = append(b, `,"arguments":`...)
	return append(b, args...)
}

func appendSome(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return appendText(b, key, s)
}

func appendSize(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return appendInt(b, key, n)
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(b, key...), n, 10)
}

func appendText(b []byte, key, s string) []byte {
	b = append(b, key...)
	if len(s) > maxText {
		cut := maxText
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return appendString(b, s)
}

// appendString appends s as a JSON string. Invalid UTF-8 is replaced.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // the only possible error is invalid UTF-8, which was replaced
	return b
}
