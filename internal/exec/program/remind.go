package program

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Memory is what agents remember of their earlier answers.
type Memory interface {
	// Lines are an agent's own records, a line of JSON for each. changed is how
	// many were left out because they cannot be trusted.
	Lines(ctx context.Context, agentID string) (lines []byte, changed int, err error)
}

const (
	// memoryFile is where a program sees its memory, and memoryVariable what says
	// so to it.
	memoryFile     = "/memory.jsonl"
	memoryVariable = "AMBIT_MEMORY"
	// memoryRead is the capability without which it sees none.
	memoryRead = "memory.read"
)

// remind shows a program its memory, if whoever gives the work holds memory.read
// and the agent asks for it. done takes the file away again.
func (b *binding) remind(ctx context.Context, c *call.Call, s *sandbox.Spec) (done func(), err error) {
	if b.options.Memory == nil || !slices.Contains(c.Held, memoryRead) {
		return func() {}, nil
	}
	lines, changed, err := b.options.Memory.Lines(ctx, b.agent.ID)
	if err != nil {
		return nil, call.Refuse(sandbox.Stage, call.StoreUnavailable, "what the agent remembers cannot be read: %v", err)
	}
	if changed > 0 {
		b.options.Log("some records of the agent's memory were changed in the store; the program does not see them")
	}
	// Nobody else reaches into the folder; the file is open to the user that the
	// program runs as.
	folder, err := sandbox.TempDir()
	if err != nil {
		return nil, failed(NotStarted, "its memory cannot be shown to the program: %v", err)
	}
	done = func() { os.RemoveAll(folder) }
	file := filepath.Join(folder, "memory.jsonl")
	if err = os.WriteFile(file, lines, 0o444); err == nil {
		file, err = resolved(file)
	}
	if err != nil {
		done()
		return nil, failed(NotStarted, "its memory cannot be shown to the program: %v", err)
	}
	s.Pool = nil // no sandbox can have waited with this file in it, nor will another
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: file, To: memoryFile})
	s.Env = append(s.Env, memoryVariable+"="+memoryFile)
	return done, nil
}
