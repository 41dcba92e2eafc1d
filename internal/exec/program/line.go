package program

import (
	"bytes"
	"cmp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// intent is the line that a program reads.
type intent struct {
	ID       string  `json:"id"`
	Text     string  `json:"text"`
	Issuer   issuer  `json:"issuer"`
	IssuedAt int64   `json:"issued_at"`
	Priority string  `json:"priority"`
	Parent   *string `json:"parent"`
}

type issuer struct {
	Display string `json:"display"`
	Pubkey  string `json:"pubkey"`
}

// intent makes the line for a call.
func (b *binding) intent(c *call.Call) (line []byte, id string, err error) {
	var args struct {
		Text     *string `json:"text"`
		Priority string  `json:"priority"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil || args.Text == nil {
		return nil, "", call.Refuse(sandbox.Stage, call.InputInvalid, "a program takes an object with a text")
	}
	i := intent{ID: uuid(c.ID), Text: *args.Text, Issuer: issuer{Display: c.Principal}, IssuedAt: time.Now().UnixMilli(), Priority: args.Priority}
	if b.options.Pubkey != nil {
		i.Issuer.Pubkey = b.options.Pubkey(c.Principal)
	}
	if s := b.agent.Settlement; s != nil {
		i.Priority = cmp.Or(i.Priority, string(s.Priority))
	}
	i.Priority = cmp.Or(i.Priority, "normal")
	if c.Parent != "" {
		parent := uuid(c.Parent)
		i.Parent = &parent
	}
	line, err = json.Marshal(i)
	return append(line, '\n'), i.ID, err
}

// uuid writes the 32 hex digits of a call's ID as a UUID.
func uuid(id string) string {
	if len(id) != 32 {
		return id
	}
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// answer is the line that a program writes.
type answer struct {
	IntentID *string  `json:"intent_id"`
	Status   *string  `json:"status"`
	Text     *string  `json:"text"`
	Sources  []string `json:"sources"`
}

// readAnswer takes the one line of a program that ended well.
func readAnswer(stdout []byte, id string) (*answer, *Failure) {
	var only []byte
	for line := range bytes.Lines(stdout) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if only != nil {
			f := failed(TwoAnswers, "the program wrote more than one line to stdout")
			f.Hint = "write exactly one line of JSON to stdout, and everything else to stderr"
			return nil, f
		}
		only = line
	}
	if only == nil {
		f := failed(NoAnswer, "the program ended without an answer")
		f.Hint = "write exactly one line of JSON to stdout"
		return nil, f
	}
	var a answer
	if err := json.Unmarshal(only, &a); err != nil {
		// The library's words would quote the line.
		return nil, failed(BadJSON, "the program's answer is not a JSON object with intent_id, status, text and sources")
	}
	switch {
	case a.IntentID == nil || *a.IntentID != id:
		return nil, failed(WrongIntent, "the program's answer is not to the intent that it was given; intent_id must repeat its id")
	case a.Status == nil || *a.Status != "ok" && *a.Status != "error":
		return nil, failed(BadStatus, "the status of the program's answer is neither ok nor error")
	case a.Text == nil:
		return nil, failed(BadJSON, "the program's answer has no text")
	case *a.Status == "error":
		return nil, failed(StatusError, "the program says that it failed: %s", diag.Quote(*a.Text))
	}
	if a.Sources == nil {
		a.Sources = []string{}
	}
	return &a, nil
}

// result is an answer as the result of a tool.
func (a *answer) result() (jsontext.Value, error) {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return json.Marshal(struct {
		Content           []text  `json:"content"`
		StructuredContent *answer `json:"structuredContent"`
	}{[]text{{"text", *a.Text}}, a})
}
