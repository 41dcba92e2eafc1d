package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/bench/cpu"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// candidate is a text and the CPU time of its scan.
type candidate struct {
	parts []string
	// shuffled is set if the parts follow each other in random order, so that the processor cannot predict them.
	shuffled bool
	cost     float64 // nanoseconds per byte
}

// random is the first byte of a part that is replaced with random letters and digits. They differ in each repetition.
// The second byte is the number of letters and digits.
const random = '\x00'

// text repeats the parts of the candidate up to the given size in bytes.
func (c *candidate) text(size int) []byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	r := rand.New(rand.NewPCG(1, 1))
	out := make([]byte, 0, size+256)
	for i := 0; len(out) < size; i++ {
		part := c.parts[i%len(c.parts)]
		if c.shuffled {
			part = c.parts[r.IntN(len(c.parts))]
		}
		if part[0] != random {
			out = append(out, part...)
			continue
		}
		for range part[1] {
			out = append(out, alphabet[r.IntN(len(alphabet))])
		}
	}
	return bytes.ToValidUTF8(out[:size], nil)
}

// slow lists texts that are known to be slow. The search starts with these texts.
var slow = [][]string{
	{"password=", "\x00\x0a", "\n"},
	{"pwd=", "\x00\x08", "\n"},
	{"password=", "\x00\x0a", "\\n"},
	{"ghp_", "\x00\x24", "\n"},
	{"API_TOKEN=", "\x00\x28", "\n"},
	{`{"id":1,"api_key":"`, "\x00\x20", `"},`},
	{"Bearer ", "\x00\x0c", " "},
	{"AKIA", "\x00\x10", " "},
	{"H4sIAAAAAAAAA", "\x00\x18", " "},
	{"Cookie: a=", "\x00\x11", "; "},
	{"kind: Secret\ndata:\n a: ", "\x00\x0b", "\n"},
	{"cGFzc3dvcmQ9aHVudGVyMnghOSBhbmQgbW9yZSA", " "},
	{"70617373776f72643d68756e746572327821392061206220", " "},
	{"live_live_live_"},
	{"sk_live_ "},
	{"bearer SWMKEY-1-live_live_x"},
	{"sgp_tk.eyJpnu_xA-Za-z0-9kind: secretpa-glft-"},
	{"sec-c-contribsysdp.\u200bPRODUCTIONkind: secret"},
	{`\nsk_test_UUID-----BEGIN A-Za-z0-9` + "\u200bAAAAAAAAAAAAAAAAAAAAAA"},
	{"pass\u200bword=", "\x00\x09", " "},
	{"&&&&%%%%"},
	{"%41&#65;а"},
	{`\n`},
	{"ｐａｓｓｗｏｒｄ＝ｈｕｎｔｅｒ２ "},
	{"putty-user-key private-mac: "},
}

const (
	short = 64 << 10 // the size in bytes of the texts in the search
	keep  = 50       // the number of texts that remain after a round
	again = 20       // the number of texts that are measured again in each size
)

// worst searches for the texts whose scans take the most CPU time. It generates texts from the words that the scan looks
// for, measures them, and varies the slowest ones. Then it measures the slowest texts again in several sizes. It prints
// the CPU time per byte of the slowest text of each size, compared with prose of that size.
func worst(project string, seed uint64, inputs int) error {
	kinds, err := texts(project)
	if err != nil {
		return err
	}
	words, err := fragments(project)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, seed))
	scan := func(text []byte, times int) float64 {
		best := 0.0
		for range times {
			start, n := cpu.Used(), 0
			for n < 2 || cpu.Used()-start < 100_000 {
				guard.Scan(text)
				n++
			}
			best = lowest(best, float64(cpu.Used()-start)/float64(n)/float64(len(text)))
		}
		return best
	}
	plain := usual(kinds["prose"], short)
	var best []candidate
	var costs []float64
	for _, parts := range slow {
		c := candidate{parts: parts}
		c.cost = scan(c.text(short), 1)
		best = append(best, c)
	}
	for tried := len(best); tried < inputs; {
		next := slices.Clone(best)
		for range min(1_000, inputs-tried) {
			tried++
			var c candidate
			if r.IntN(4) == 0 {
				for range 1 + r.IntN(6) {
					c.parts = append(c.parts, words[r.IntN(len(words))])
				}
			} else {
				parent := best[r.IntN(len(best))]
				c.parts = vary(r, parent.parts, best[r.IntN(len(best))].parts, words)
				c.shuffled = parent.shuffled != (r.IntN(8) == 0)
			}
			c.cost = scan(c.text(short), 1)
			costs = append(costs, c.cost/plain)
			next = append(next, c)
		}
		slices.SortFunc(next, func(a, b candidate) int {
			if a.cost > b.cost {
				return -1
			}
			return 1
		})
		best = next[:min(keep, len(next))]
	}
	slices.Sort(costs)
	fmt.Printf("\nCPU time of %d texts of %d bytes, as a multiple of the time for prose:", inputs, short)
	for _, share := range []float64{.5, .9, .99, .999} {
		fmt.Printf("  %g %%: %.1f", 100*share, costs[int(share*float64(len(costs)-1))])
	}
	fmt.Printf("\n%-16s %9s %10s %10s %6s\n", "slowest text of", "ns/byte", "prose", "times", "parts")
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		var slowest candidate
		var worst, usually float64
		for _, c := range best[:min(again, len(best))] {
			// The machine becomes faster and slower with its other work, so measure each text beside prose in turn.
			text, cost, beside := c.text(size), 0.0, 0.0
			for range 5 {
				cost = lowest(cost, scan(text, 1))
				beside = lowest(beside, usual(kinds["prose"], size))
			}
			if cost/beside > worst {
				slowest, worst, usually = c, cost/beside, beside
			}
		}
		fmt.Printf("%-16d %9.1f %10.1f %10.1f  %q, shuffled: %v\n", size, worst*usually, usually, worst, slowest.parts, slowest.shuffled)
	}
	return nil
}

// usual returns the CPU time per byte of a scan of prose, as the best of several rounds. A round scans many different
// texts, as a gateway does, so the processor cannot adapt to the branches of a single text.
func usual(prose []byte, size int) (best float64) {
	prose = fill(prose, max(1<<20, 2*size))
	for range 2 {
		start := cpu.Used()
		for at := 0; at+size <= len(prose); at += size {
			guard.Scan(prose[at : at+size])
		}
		best = lowest(best, float64(cpu.Used()-start)/float64(len(prose)))
	}
	return best
}

// lowest returns the lower cost. A cost of 0 is not known yet.
func lowest(a, b float64) float64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// vary changes, adds, drops or repeats a part, or joins two texts.
func vary(r *rand.Rand, a, b, words []string) []string {
	out := slices.Clone(a)
	at := r.IntN(len(out))
	switch r.IntN(5) {
	case 0:
		out[at] = words[r.IntN(len(words))]
	case 1:
		out = slices.Insert(out, at, words[r.IntN(len(words))])
	case 2:
		if len(out) > 1 {
			out = slices.Delete(out, at, at+1)
		}
	case 3:
		out = slices.Insert(out, at, out[at])
	default:
		out = append(out[:at], b[r.IntN(len(b)):]...)
		if len(out) == 0 {
			out = slices.Clone(b)
		}
	}
	return out[:min(len(out), 40)]
}

// fragments returns the literals of the secret formats, and other texts that the scan searches for.
func fragments(project string) ([]string, error) {
	list, err := os.ReadFile(project + "/internal/gateway/guard/secret/formats.txt")
	if err != nil {
		return nil, err
	}
	words := []string{
		"password", "pwd", "secret", "token", "key", "api_key", "auth", "authorization", "bearer ", "Basic ", "cookie: ", "sig=",
		"://", "curl ", " -u ", "kind: secret", "data:", "-----BEGIN ", "PRIVATE KEY-----", "PuTTY-User-Key-File", "credential",
		"=", ": ", "\"", "'", "`", ">", "<", ",", ";", "&", "|", "\n", " ", "\\n", "\\u0041", "%41", "%2541", "&#65;", "\u200b", "а", "ｇ",
		"\x00\x04", "\x00\x08", "\x00\x0c", "\x00\x14", "\x00\x20", "\x00\x28", "a", "A", "0", "Zk3vT9wQ", "9f8e7d6c", "QUFBQUFB", "eyJhbGciOiJIUzI1NiJ9.", "/", "-", "_", ".", "value", "[secret:",
	}
	literals := regexp.MustCompile(`[A-Za-z0-9_.-]{3,}`)
	for line := range strings.Lines(string(list)) {
		if id, expression, ok := strings.Cut(line, "\t"); ok && id != "" {
			words = append(words, literals.FindAllString(strings.ReplaceAll(expression, "\\", ""), -1)...)
		}
	}
	return words, nil
}
