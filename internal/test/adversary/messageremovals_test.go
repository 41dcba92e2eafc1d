package adversary

// These removals concern what servers send besides the answers to calls.
func init() {
	removals = append(removals, []removal{
		{"P402", "internal/serve/front/exposed.go", `if left -= len(result); left < 0 {`, `if left < 0 {`, "./internal/serve/front", "TestMergedListsAreBounded"},
		{"P402", "internal/serve/front/exposed.go", `if !ok || len(name) > maxURI {`, `if !ok {`, "./internal/serve/front", "TestMergedListsAreBounded"},
	}...)
}
