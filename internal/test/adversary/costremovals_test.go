package adversary

// These removals concern the cost of the search for secrets.
func init() {
	removals = append(removals, []removal{
		{"P253", "internal/gateway/guard/secret/scan.go", `	return at > 0 && (text[at-1] == '\\' ||`, `	return at > 1 && (false ||`, "./internal/gateway/guard/secret", "TestLayers"},
		{"P360", "internal/gateway/guard/secret/effort.go", `return 20 + min(`, `return 200 + min(`, "./internal/gateway/guard/secret", "TestListsOfSecrets"},
		{"P361", "internal/gateway/guard/secret/decode.go", `!isGzip && !isZlib || !s.spend(inflateStart)`, `!isGzip && !isZlib`, "./internal/gateway/guard/secret", "TestCompressedRunsAreBounded"},
		{"P362", "internal/gateway/guard/secret/copies.go", `return key * seed`, `return key * (seed & 1)`, "./internal/gateway/guard/secret", "TestTableOfCopies"},
		{"P474", "internal/gateway/guard/secret/copies.go", `c.lookups < 0`, `false`, "./internal/gateway/guard/secret", "TestSearchForCopiesIsBounded"},
		{"P475", "internal/gateway/guard/literal/literal.go", `	t.endSequences()`, ``, "./internal/gateway/guard/literal", "TestSequencesHaveFewHits"},
	}...)
}
