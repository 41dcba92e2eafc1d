package gateway

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// TestKillAtEveryStage starts this test binary as a process that makes one call. The process is killed when a given
// stage begins, or after the last stage, just before the answer is returned. The test uses the gateway's own list
// of stages, so it covers a new stage too.
const (
	envStage  = "AMBIT_TEST_KILL_AT"
	envTool   = "AMBIT_TEST_KILL_TOOL"
	envWho    = "AMBIT_TEST_KILL_WHO"
	beforeOut = "answer" // beforeOut is after the stage that records the call, and before the answer is returned
)

// dieAt makes one call and kills its own process when the stage with the given index begins. It takes an index
// because the list can contain a stage name twice.
func dieAt(number string, h home.Home, storeURL string) {
	ctx := context.Background()
	die := func(*Gateway, context.Context, *inflight) *call.Refusal {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		fmt.Println("not killed", err)
		select {} // wait until the signal arrives
	}
	at, err := strconv.Atoi(number)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	stages = append(stages, stage{stageRecord, func(*Gateway, context.Context, *inflight) *call.Refusal { return nil }})
	if at < len(stages) {
		stages[at].run = die
	}
	who := os.Getenv(envWho)
	b, g, err := gatewayOf(ctx, h, storeURL, who)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	defer b.Close()
	if _, err := g.Call(ctx, keyed(os.Getenv(envTool), who)); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	die(nil, ctx, nil)
}

// gatewayOf makes a gateway. The effects of each principal's calls are in a separate file.
func gatewayOf(ctx context.Context, h home.Home, storeURL, who string) (*store.Store, *Gateway, error) {
	b, err := store.OpenLong(ctx, h, storeURL)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(filepath.Join(h.Dir(), "effects of "+who), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return b, New(spender(), Options{Binding: outside{file}, Store: b}), nil
}

// keyed returns the call that the killed process makes and that the test repeats.
func keyed(tool, who string) *call.Call {
	return &call.Call{ID: NewID(), Tool: tool, Principal: who, Arguments: jsontext.Value(`{"amount":0.25}`), IdempotencyKey: "once"}
}

func TestKillAtEveryStage(t *testing.T) {
	points := []string{}
	for _, s := range stages {
		points = append(points, s.name)
	}
	points = append(points, stageRecord, beforeOut)
	intended := slices.Index(points, stageIntend)
	acted := slices.Index(points, stageAct)
	statetest.Places(t, func(t *testing.T, place string) {
		h := home.At(t.TempDir()) // all subtests use the keys of one store
		for i, at := range points {
			for _, tool := range []string{"pay", "repeat"} {
				t.Run(at+"/"+tool, func(t *testing.T) {
					k := killed{t: t, at: strconv.Itoa(i), tool: tool, who: fmt.Sprintf("%s-%d", tool, i), place: place, home: h}
					switch {
					case i <= intended: // nothing was stored or sent before the process died
						k.leaves(0, nil, "made")
					case at == beforeOut:
						k.leaves(1, []journal.Decision{journal.Allow}, "replayed")
					case tool == "repeat": // recovery sends the call again with the same key
						k.leaves(1+min(1, max(0, i-acted)), []journal.Decision{journal.Allow}, "replayed")
					default:
						k.leaves(min(1, i-acted), []journal.Decision{journal.Unknown}, "refused")
					}
				})
			}
		}
	})
}

type killed struct {
	t               *testing.T
	at, tool, place string
	who             string // the principal; it is different in each test, because the tests share a database
	home            home.Home
}

// leaves kills a process during a call, recovers, and checks the number of effects and the journal records. Then it
// repeats the call and compares the outcome with the last parameter: "made", "replayed" or "refused".
func (k killed) leaves(effects int, want []journal.Decision, again string) {
	k.t.Helper()
	storeURL := k.place
	if !strings.HasPrefix(storeURL, "postgres://") {
		storeURL = ""
	}
	cmd := exec.CommandContext(k.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envStage+"="+k.at, envTool+"="+k.tool, envWho+"="+k.who, envWorker+"="+k.home.Dir(), envStore+"="+storeURL)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		k.t.Fatalf("the call ended with %v: %s", err, out)
	}
	b, g, err := gatewayOf(k.t.Context(), k.home, storeURL, k.who)
	if err != nil {
		k.t.Fatal(err)
	}
	defer b.Close()
	defer g.Close()
	var got []journal.Decision
	// A PostgreSQL server can need a moment to notice that the process was killed.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := g.Recover(k.t.Context()); err != nil {
			k.t.Fatal(err)
		}
		if got = k.decisions(b); slices.Equal(got, want) || time.Now().After(deadline) {
			break
		}
	}
	if !slices.Equal(got, want) {
		k.t.Errorf("the journal has %v, want %v", got, want)
	}
	if n := k.effects(); n != effects {
		k.t.Errorf("got %d effects, want %d", n, effects)
	}
	_, err = g.Call(k.t.Context(), keyed(k.tool, k.who))
	more := k.effects() - effects
	refusal, refused := err.(*call.Refusal)
	switch {
	case again == "made" && (err != nil || more != 1), again == "replayed" && (err != nil || more != 0),
		again == "refused" && (!refused || refusal.Code != call.OutcomeUnknown || more != 0):
		k.t.Errorf("the repeated call was not %s: error %v, %d more effects", again, err, more)
	}
	if report, err := b.Journal.Verify(k.t.Context(), journal.Check{}); err != nil || !report.OK {
		k.t.Errorf("verifying the journal failed: %+v, %v", report, err)
	}
}

// decisions returns the decisions that the journal contains about the calls of the principal.
func (k killed) decisions(b *store.Store) (got []journal.Decision) {
	k.t.Helper()
	entries, err := b.Journal.Show(k.t.Context(), journal.Filter{Principal: k.who, Limit: 100})
	if err != nil {
		k.t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Record.Decision)
	}
	return got
}

func (k killed) effects() int {
	text, err := os.ReadFile(filepath.Join(k.home.Dir(), "effects of "+k.who))
	if err != nil && !os.IsNotExist(err) {
		k.t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}
