package program

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Memory holds the earlier answers of agents.
type Memory interface {
	// Lines returns an agent's records as lines of JSON. It omits records that were modified in the store. The
	// second result is the number of omitted records.
	Lines(ctx context.Context, agentID string) (lines []byte, changed int, err error)
}

const (
	// memoryFile is the path of the memory file inside the sandbox.
	memoryFile = "/memory.jsonl"
	// memoryVariable is the environment variable that contains the path of the memory file.
	memoryVariable = "AMBIT_MEMORY"
	// memoryRead is a capability. The program gets its memory only if the caller holds this capability.
	memoryRead = "memory.read"
)

// mountMemory adds a file with the agent's memory to the run if the caller holds memory.read. The returned function
// deletes the file.
func (b *binding) mountMemory(ctx context.Context, c *call.Call, s *sandbox.Spec) (remove func(), err error) {
	if b.options.Memory == nil || !slices.Contains(c.Held, memoryRead) {
		return func() {}, nil
	}
	lines, changed, err := b.options.Memory.Lines(ctx, b.agent.ID)
	if err != nil {
		return nil, call.Refuse(sandbox.Stage, call.StoreUnavailable, "the agent's memory cannot be read: %v", err)
	}
	if changed > 0 {
		b.options.Log("some records in the agent's memory were changed in the store, so the program cannot see them")
	}
	// Other users cannot enter the folder, but the user of the sandbox must be able to read the file.
	folder, err := sandbox.TempDir()
	if err != nil {
		return nil, failed(NotStarted, "the file with the agent's memory cannot be written: %v", err)
	}
	remove = func() { os.RemoveAll(folder) }
	file := filepath.Join(folder, "memory.jsonl")
	if err = os.WriteFile(file, lines, 0o444); err == nil {
		file, err = resolved(file)
	}
	if err != nil {
		remove()
		return nil, failed(NotStarted, "the file with the agent's memory cannot be written: %v", err)
	}
	s.Pool = nil // use a new sandbox, because prepared sandboxes lack this file
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: file, To: memoryFile})
	s.Env = append(s.Env, memoryVariable+"="+memoryFile)
	return remove, nil
}

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

// intent returns the line that the program reads for a call, and the id of the intent.
func (b *binding) intent(c *call.Call) (line []byte, id string, err error) {
	var args struct {
		Text     *string `json:"text"`
		Priority string  `json:"priority"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil || args.Text == nil {
		return nil, "", call.Refuse(sandbox.Stage, call.InputInvalid,
			"the arguments must be an object with the field \"text\"")
	}
	i := intent{
		ID: uuid(c.ID), Text: *args.Text, Issuer: issuer{Display: c.Principal},
		IssuedAt: time.Now().UnixMilli(), Priority: args.Priority,
	}
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

// uuid formats the 32 hexadecimal digits of a call's id as a UUID.
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

// badAnswer returns the refusal of an answer. The hint shows a valid answer.
func badAnswer(reason Reason, message string) *call.Refusal {
	f := failed(reason, "%s", message)
	f.Hint = `write one line to stdout: {"intent_id": ID, "status": "ok", "text": "…", "sources": []}, ` +
		`where ID is the "id" that the program read`
	return f
}

// readAnswer parses the output of a program that exited with code 0. The output must be one line with the answer to
// the intent with the given id.
func readAnswer(stdout []byte, id string) (*answer, *call.Refusal) {
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
		f := failed(NoAnswer, "the program exited without an answer")
		f.Hint = "write exactly one line of JSON to stdout"
		return nil, f
	}
	var a answer
	if err := json.Unmarshal(only, &a); err != nil {
		// Omit the library's error, because it would quote the program's output.
		return nil, badAnswer(BadJSON, "the program's answer is not a JSON object with intent_id, status, text and sources")
	}
	switch {
	case a.IntentID == nil:
		return nil, badAnswer(WrongIntent, "the program's answer has no \"intent_id\"")
	case *a.IntentID != id:
		return nil, badAnswer(WrongIntent, "the answer's intent_id is not the id of the intent")
	case a.Status == nil || *a.Status != "ok" && *a.Status != "error":
		return nil, badAnswer(BadStatus, "the answer's status is neither \"ok\" nor \"error\"")
	case a.Text == nil:
		return nil, badAnswer(BadJSON, "the program's answer has no \"text\"")
	}
	if a.Sources == nil {
		a.Sources = []string{}
	}
	return &a, nil
}

// isError reports whether the program reported that it could not do the task. Such an answer is still a complete
// answer.
func (a *answer) isError() bool { return *a.Status == "error" }

func (a *answer) result() (jsontext.Value, error) {
	structured, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return json.Marshal(toolResult{Content: []textContent{{"text", *a.Text}}, Structured: structured, IsError: a.isError()})
}
