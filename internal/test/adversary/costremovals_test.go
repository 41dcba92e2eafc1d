package adversary

// These removals concern the cost of the search for secrets.
func init() {
	removals = append(removals, []removal{
		{"P253", "internal/gateway/guard/secret/scan.go", `	return at > 0 && (text[at-1] == '\\' ||`, `	return at > 1 && (false ||`, "./internal/gateway/guard/secret", "TestLayers"},
		{"P360", "internal/gateway/guard/secret/effort.go", `foundEffort = 24`, `foundEffort = 240`, "./internal/gateway/guard/secret", "TestListsOfSecrets"},
		{"P361", "internal/gateway/guard/secret/decode.go", `!isGzip && !isZlib || !s.spend(inflateStart)`, `!isGzip && !isZlib`, "./internal/gateway/guard/secret", "TestCompressedRunsAreBounded"},
		{"P362", "internal/gateway/guard/secret/copies.go", `return high ^ low`, `return high&0 ^ low`, "./internal/gateway/guard/secret", "TestTableOfCopies"},
	}...)
}
