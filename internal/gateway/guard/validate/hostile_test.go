package validate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/validate/validatetest"
)

// TestHostile checks generated schemas and values. No check exceeds the limits on work and memory, and each check ends
// when its caller leaves. bench/hostile measures the time that the same cases take.
func TestHostile(t *testing.T) {
	const mostBytes = 64 << 20 // twice the goal
	cases := append(validatetest.Schemas(1, 200), validatetest.Values(1, 200)...)
	for i, c := range cases {
		if race && i%10 > 0 {
			continue
		}
		ctx, value := &polled{t.Context(), math.MaxInt}, []byte(c.Value)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		New(c.Schema).Check(ctx, value)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > mostBytes && !race {
			t.Errorf("case %d (%s) allocated %d MiB, want at most %d", i, c.Name, used>>20, mostBytes>>20)
		}
		// The context is checked once in 4096 units of work, and a few more times during matches of regular expressions.
		const mostPolls = maxWork>>12 + maxWork>>14
		polls := math.MaxInt - ctx.left
		if polls > mostPolls {
			t.Errorf("case %d (%s) checked its context %d times, want at most %d", i, c.Name, polls, mostPolls)
		}
		if polls < 4 || i%4 > 0 {
			continue
		}
		ctx = &polled{t.Context(), polls / 2}
		if problems, err := New(c.Schema).Check(ctx, value); !errors.Is(err, context.Canceled) {
			t.Errorf("case %d (%s): got %v, %v after the caller had left, want %v", i, c.Name, problems, err, context.Canceled)
		}
	}
}

// spent returns the work of a check that reports no problems.
func spent(t *testing.T, schema, value string) int {
	t.Helper()
	s := New(schema)
	if s.once.Do(s.compile); s.err != nil {
		t.Fatal(s.err)
	}
	doc, err := decode([]byte(value))
	if err != nil {
		t.Fatal(err)
	}
	e := &evaluation{ctx: t.Context(), work: math.MaxInt}
	e.matches(s.schema, doc, false, nil)
	return math.MaxInt - e.work
}

// TestWorkIsCounted checks that the work of steps that a stranger can make ambit repeat is counted. The minimum for
// each case is about the time of its step in units of 25 ns.
func TestWorkIsCounted(t *testing.T) {
	names := items(1000, func(i int) string { return fmt.Sprintf(`"n%d"`, i) })
	object := "{" + strings.ReplaceAll(strings.Trim(names, "[]"), ",", ":1,") + ":1}"
	long := "0." + strings.Repeat("0", 400) + strings.Repeat("7", 500)
	const draft7 = `{"$schema":"http://json-schema.org/draft-07/schema#",`
	for _, tt := range []struct {
		name, schema, value string
		least               int
	}{
		{"dependentRequired", `{"dependentRequired":{"n0":` + names + `}}`, object, 1000},
		{"dependencies", draft7 + `"dependencies":{"n0":` + names + `}}`, object, 1000},
		{"members", `{"additionalProperties":{}}`, object, 10_000},
		{"a slow pattern", `{"pattern":"(x?){100}y"}`, `"` + strings.Repeat("x", 1000) + `"`, 200_000},
		{"many patterns", `{"allOf":` + items(100, func(i int) string { return fmt.Sprintf(`{"pattern":"^x%d"}`, i) }) + `}`, `"y"`, 16},
		{"names of members and patterns", `{"patternProperties":{"^a":true,"^b":true,"^c":true}}`, object, 20_000},
		{"a long multipleOf", `{"multipleOf":` + long + `}`, `3`, 300},
		{"a long minimum", `{"minimum":-` + long + `}`, `3.5`, 100},
		{"unevaluated members", `{"additionalProperties":true,"unevaluatedProperties":false}`, object, 15_000},
		{"unique items", `{"uniqueItems":true}`, names, 10_000},
		{"an expression as a format", draft7 + `"format":"regex"}`, `"` + strings.Repeat("x{1000}", 100) + `"`, 300_000},
	} {
		if got := spent(t, tt.schema, tt.value); got < tt.least {
			t.Errorf("%s: %d units of work are counted, want at least %d", tt.name, got, tt.least)
		}
	}
}

// TestSingle checks in which expressions the next character always decides how a match continues.
func TestSingle(t *testing.T) {
	for expr, want := range map[string]bool{
		"^[A-Za-z0-9+/]*={0,2}$": true, "^([A-Za-z0-9+/]{4})*(==|=)?$": true, `^\d{3}-\d{4}$`: true, "^(abc|abd)*$": true, "^$": true, "^a+b*c?$": true, "^.": true,
		"abc": false, "^a*a$": false, "^(a|ab)c?bd$": false, "^(x?){3}y": false, "^(?i)k*$": false, `^.*\.txt$`: false, "^[^@]+@[^@]+$": true, `^[^@]+@[^@]+\.[a-z]+$`: false,
		"^a|b": false, `^\pL*\d+$`: false, // a large class, which is too expensive to analyze
	} {
		re, err := new(patterns).compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := re.(*pattern).single; got != want {
			t.Errorf("single(%s) = %t, want %t", expr, got, want)
		}
	}
}

func TestEqualNumbers(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true},
		{"100", "1e2", true},
		{"0", "-0.00e7", true},
		{"12.5e1", "125", true},
		{"0.05", "5E-2", true},
		{"1200", "1.2e+3", true},
		{"1", "-1", false},
		{"10", "1", false},
		{"0.1", "0.01", false},
		{"1e400", "1e399", false},
		{"123456789012345678901", "123456789012345678902", false},
	} {
		for _, pair := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			problems, err := New(`{"const":`+pair[0]+`}`).Check(t.Context(), []byte(pair[1]))
			if err != nil || (problems == nil) != tt.want {
				t.Errorf("%s equals %s: got %v, %v, want %t", pair[0], pair[1], problems, err, tt.want)
			}
			problems, err = New(`{"uniqueItems":true}`).Check(t.Context(), []byte(`[`+pair[0]+`,true,false,null,"a","b","c","d","e",`+pair[1]+`]`))
			if err != nil || (problems != nil) != tt.want {
				t.Errorf("%s and %s in a set: got %v, %v, want a duplicate: %t", pair[0], pair[1], problems, err, tt.want)
			}
		}
	}
}
