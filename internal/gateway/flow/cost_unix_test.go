//go:build unix

package flow

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpu returns the CPU time that the process has used. Other processes do not change it as much as they change the time
// on the clock.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measureCPU reports the CPU time of the benchmark's work for each of n units, and its ratio to the time that an
// FNV-64a hash of as many kilobytes takes in the same process.
func measureCPU(b *testing.B, unit string, n float64, work func()) {
	h, text := fnv.New64a(), make([]byte, 1<<20)
	start := cpu(b)
	for range 20 {
		h.Write(text)
	}
	perKB := float64(cpu(b)-start) / (20 << 10)
	b.ReportAllocs()
	start = cpu(b)
	b.ResetTimer()
	work()
	b.StopTimer()
	each := float64(cpu(b)-start) / float64(b.N) / n
	b.ReportMetric(each/1000, "cpu-µs/"+unit)
	b.ReportMetric(each/perKB, "fnv-KB/"+unit)
}

// records is a list of objects with fields and a text, as the servers of trackers and shops return them.
func records(size int) string {
	var list []any
	for i := 0; i*230 < size; i++ {
		list = append(list, map[string]any{
			"id": i, "key": fmt.Sprintf("PRJ-%d", i), "state": "open", "assignee": fmt.Sprintf("user%d@example.org", i%40),
			"created_at": "2026-03-04T10:00:00Z", "url": fmt.Sprintf("https://tracker.example.org/PRJ/%d", i),
			"title": "The page does not load", "votes": i * 7,
		})
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// letters is text with letters outside ASCII.
func letters(size int) string {
	const text = "Die Übergabe läuft wie geplant – “fast” alle Gäste möchten früher anreisen und später zurückfahren. "
	return strings.Repeat(text, size/len(text)+1)[:size]
}

// mails is a list of mails in YAML.
func mails(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "- id: '%d'\n  sender: user%d@example.org\n  read: true\n  recipients:\n  - me@example.org\n"+
			"  subject: Plans for the spring\n  body: \"Hello,\\nthe plans are ready and the costs of 1,200 are approved.\\\n"+
			"    \\ Please read them.\\nAnn\"\n", i, i%40)
	}
	return b.String()
}

func BenchmarkObserve(b *testing.B) {
	for name, text := range map[string]string{
		"prose/1KB": prosePage(1 << 10), "prose/8KB": prosePage(8 << 10), "prose/256KB": prosePage(256 << 10),
		"accents/64KB": letters(64 << 10), "json/64KB": records(64 << 10), "yaml/32KB": mails(32 << 10),
	} {
		result := resultOf(text)
		arguments := `{"path":"x"}`
		tool := reader
		if name[0] == 'j' || name[0] == 'y' {
			tool, arguments = lister, `{}`
		}
		b.Run(name, func(b *testing.B) {
			measureCPU(b, "KB", float64(len(result))/1024, func() {
				s := NewMemory(DefaultWindow).Session("", now)
				for i := 0; b.Loop(); i++ {
					if i%(1+(1<<20)/len(text)) == 0 {
						s = NewMemory(DefaultWindow).Session("", now)
					}
					s.Observe(tool, []byte(arguments), result, Source{Call: "1", Time: now})
				}
			})
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	s := NewMemory(DefaultWindow).Session("", now)
	s.Observe(reader, []byte(`{"path":"x"}`), resultOf(prosePage(1<<20)), Source{Call: "1", Time: now})
	letter := prosePage(4 << 10)[1000:2500]
	for name, arguments := range map[string]string{
		"unknown":   `{"iban":"` + account + `","amount":12,"note":"rent for March"}`,
		"known":     `{"iban":"user77@example.org","amount":1200,"note":"the report for everybody"}`,
		"frequent":  `{"iban":"the-committee@to.example.com","amount":1200,"note":"the report"}`,
		"long text": `{"iban":"user77@example.org","amount":1,"note":` + mustJSON(letter) + `}`,
	} {
		b.Run(name, func(b *testing.B) {
			measureCPU(b, "effect", 1, func() {
				for b.Loop() {
					s.Decide(payer, []byte(arguments), now, false)
				}
			})
		})
	}
}

func mustJSON(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}
