package adversary

// These removals concern the cost of the search for secrets.
func init() {
	removals = append(removals, []removal{
		{"P253", "internal/gateway/guard/secret/scan.go", `	return at > 0 && (text[at-1] == '\\' ||`, `	return at > 1 && (false ||`, "./internal/gateway/guard/secret", "TestLayers"},
		{"P360", "internal/gateway/guard/secret/effort.go", `return 10 + min(`, `return 200 + min(`, "./internal/gateway/guard/secret", "TestListsOfSecrets"},
		{"P510", "internal/gateway/guard/secret/copies.go", `if s.effort += copyEffort; s.tired(from+at, rateForm) {`, `if false {`, "./internal/gateway/guard/secret", "TestCopiesAreBounded"},
		{"P361", "internal/gateway/guard/secret/decode.go", `!isGzip && !isZlib || !s.spend(inflateStart)`, `!isGzip && !isZlib`, "./internal/gateway/guard/secret", "TestCompressedRunsAreBounded"},
		{"P362", "internal/gateway/guard/secret/copies.go", `return key * seed`, `return key * (seed & 1)`, "./internal/gateway/guard/secret", "TestTableOfCopies"},
		{"P476", "internal/exec/mcpwire/lines.go", `4 * max(cap(b), readSize)`, `max(cap(b)+cap(b)/4, readSize)`, "./internal/exec/mcpwire", "TestMemoryOfLargeMessages"},
		{"P476", "internal/exec/mcpwire/http.go", `len(b) >= maxAnnounced || length < maxAnnounced`, `true`, "./internal/exec/mcpwire", "TestMemoryOfLargeMessages"},
		{"P476", "internal/gateway/guard/window.go", `len(text) <= maxWhole`, `true`, "./internal/gateway/guard", "TestMemoryOfLargeResults"},
		{"P476", "internal/gateway/flow/flow.go", `	left := maxText //`, `	left := 1 << 40 //`, "./internal/gateway/flow", "TestLongResults"},
		{"P476", "internal/gateway/flow/shape.go", `len(raw) <= 4*maxText`, `true`, "./internal/gateway/flow", "TestLongResults"},
		{"P478", "internal/gateway/flow/shape.go", `	s.cut = true`, `	s.cut = false`, "./internal/gateway/flow", "TestEndsOfLongResults"},
		{"P476", "internal/serve/front/message.go", `return len(part) > maxCopied &&`, `return false &&`, "./internal/serve/front", "TestLargeResultIsNotCopied"},
		{"P477", "internal/gateway/guard/window.go", `overlap  = 64 << 10`, `overlap  = 0`, "./internal/gateway/guard", "TestLargeResults"},
		{"P477", "internal/gateway/guard/window.go", `bytes.IndexByte(text[word:end], '\\') < 0`, `bytes.IndexByte(text[word:end], '\\') < end`, "./internal/gateway/guard", "TestEscapedBase64InLargeResults"},
		{"P477", "internal/gateway/guard/window.go", `return end - (end-word)%4`, `return end`, "./internal/gateway/guard", "TestLargeResults"},
		{"P477", "internal/gateway/guard/output.go", `secret.Standard().AddCopies(doc, &values, secret.Merge(matches))`, `secret.Merge(matches)`, "./internal/gateway/guard", "TestCopiesInLargeResults"},
	}...)
}
