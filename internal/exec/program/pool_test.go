//go:build linux

package program_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// warm is a pool of one sandbox. It records how many prepared sandboxes were left while a
// program ran.
type warm struct {
	*sandbox.Pool
	mu   sync.Mutex
	left []int
}

func newWarm(t *testing.T) *warm {
	w := &warm{Pool: sandbox.NewPool(1, true)}
	t.Cleanup(w.Close)
	return w
}

func (w *warm) log(line string) {
	if line != "here" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = append(w.left, w.Waiting())
}

// until waits until a sandbox is ready.
func (w *warm) until(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); w.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no sandbox was prepared in time")
		}
	}
}

// took reports whether the last program ran in the prepared sandbox. In that case, the pool
// was empty while the program ran.
func (w *warm) took() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left[len(w.left)-1] == 0
}

// TestBundlePool checks that a call of wrapped code uses a prepared sandbox and sees no
// files of the previous call.
func TestBundlePool(t *testing.T) {
	for _, language := range []string{"node", "python"} {
		r := newBundleRig(t)
		w := newWarm(t)
		r.options.Pool, r.options.Log = w.Pool, w.log
		r.doc["env"] = []any{map[string]any{"name": "SETTING"}}
		r.options.Settings = map[string]string{"SETTING": "set"}
		if language == "node" {
			r.write(t, "main.mjs", `
import fs from 'node:fs';
export const handler = x => {
  console.error('here');
  const found = [...fs.readdirSync('/tmp'), ...fs.readdirSync(process.env.HOME)];
  fs.writeFileSync('/tmp/left', ''); fs.writeFileSync(process.env.HOME + '/left', '');
  return [x.n, process.env.SETTING, ...found].join(' ');
};`)
		} else {
			r.python(t, `
import os, sys
def handler(x):
    print('here', file=sys.stderr, flush=True)
    found = os.listdir('/tmp') + os.listdir(os.environ['HOME'])
    open('/tmp/left', 'w'); open(os.environ['HOME'] + '/left', 'w')
    return ' '.join([x['n'], os.environ['SETTING']] + found)
`)
		}
		b, err := r.open(t)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range []string{"one", "two", "three"} {
			result, err := b.Act(t.Context(), &b.Agent().Tools[0], &call.Call{ID: callID, Arguments: []byte(`{"n":"` + n + `"}`)})
			if err != nil || !strings.Contains(string(result.Raw), `"`+n+` set"`) {
				t.Fatalf("%s: error %v, result %s", language, err, result.Raw)
			}
			if i > 0 && !w.took() {
				t.Errorf("%s: the prepared sandbox was not used", language)
			}
			w.until(t)
		}
	}
}

// reminder is a memory with one record.
type reminder struct{}

func (reminder) Lines(context.Context, string) ([]byte, int, error) {
	return []byte("{\"text\":\"earlier\"}\n"), 0, nil
}

// TestMemoryIsNotKeptReady checks that a run with an agent's memory never uses a sandbox from the pool.
func TestMemoryIsNotKeptReady(t *testing.T) {
	r := newRig(t)
	w := newWarm(t)
	r.options.Pool, r.options.Log, r.options.Memory = w.Pool, w.log, reminder{}
	r.write(t, "main.py", `
import json, os, sys
print('here', file=sys.stderr, flush=True)
i = json.loads(sys.stdin.readline())
text = open(os.environ['AMBIT_MEMORY']).read() if 'AMBIT_MEMORY' in os.environ else 'none'
print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': text}))
`)
	act := func(held ...string) string {
		t.Helper()
		result, err := program.New(r.agent, r.options).Act(t.Context(), &r.agent.Tools[0], &call.Call{
			ID: callID, Principal: "me@local", Arguments: []byte(`{"text":"x"}`), Held: held,
		})
		if err != nil {
			t.Fatal(err)
		}
		return structured(t, result)["text"].(string)
	}
	act()
	w.until(t)
	for range 3 {
		if got := act("memory.read"); !strings.Contains(got, "earlier") || w.took() {
			t.Errorf("the answer is %q, and the prepared sandbox was used: %t", got, w.took())
		}
	}
	if got := act(); got != "none" || !w.took() {
		t.Errorf("the answer is %q, and the prepared sandbox was used: %t", got, w.took())
	}
}

var _ program.Memory = reminder{}

// TestTrustIsNotKeptReady checks that a run with its own certificate authority never uses a sandbox from the pool.
func TestTrustIsNotKeptReady(t *testing.T) {
	w := newWarm(t)
	open := func(change func(*bundleRig)) func() string {
		r := newBundleRig(t)
		r.options.Pool, r.options.Log = w.Pool, w.log
		r.write(t, "main.mjs", `export const handler = () => { console.error('here'); return (process.env.KEY || 'a-plain-run').split('-')[1]; };`)
		change(r)
		b, err := r.open(t)
		if err != nil {
			t.Fatal(err)
		}
		return func() string {
			result, err := b.Act(t.Context(), &b.Agent().Tools[0], &call.Call{ID: callID, Arguments: []byte(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			return string(result.Raw)
		}
	}
	plain := open(func(*bundleRig) {})
	swapped := open(func(r *bundleRig) {
		r.doc["allowed_hosts"] = []string{"api.example.com", "other.example.com"}
		r.doc["credential_slots"] = []any{map[string]any{
			"ref": "key", "label": "A key", "type": "secret", "env": "KEY", "allowed_hosts": []string{"api.example.com"}, "required": true,
		}}
		r.secrets["KEY"] = "a-secret-of-some-length"
	})
	plain()
	w.until(t)
	for range 3 {
		if got := swapped(); !strings.Contains(got, `"placeholder"`) || w.took() {
			t.Errorf("the answer is %s, and the prepared sandbox was used: %t", got, w.took())
		}
	}
	if got := plain(); !strings.Contains(got, `"plain"`) || !w.took() {
		t.Errorf("the answer is %s, and the prepared sandbox was used: %t", got, w.took())
	}
}
