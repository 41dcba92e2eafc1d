package adversary

// These removals concern what servers send besides the answers to calls, and files that a stranger names.
func init() {
	removals = append(removals, []removal{
		{"P400", "internal/gateway/guards.go", `c = g.observeUnrequested(c.Principal, c, flow.Source{Tool: "a message from a server"}).client(c)`, `_ = flow.Source{}`, "./internal/serve/host", "TestMessagesOnOwnConnections"},
		{"P400", "internal/gateway/dataflow.go", `if err := g.markReader(context.Background(), principal, 0); err != nil {`, `if err := error(nil); err != nil {`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P400", "internal/gateway/forward.go", `observer.notify(f.OnNotify)`, `f.OnNotify`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P400", "internal/gateway/dataflow.go", `err := g.markReader(context.Background(), p.Principal, 0); err != nil {`, `err := error(nil); err != nil {`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P401", "internal/serve/host/host.go", `s.SetLevel(ctx, g.Guard(c), level)`, `s.SetLevel(ctx, c, level)`, "./internal/serve/host", "TestMessagesOnOwnConnections"},
		{"P402", "internal/serve/front/exposed.go", `if left -= len(result); left < 0 {`, `if left < 0 {`, "./internal/serve/front", "TestMergedListsAreBounded"},
		{"P402", "internal/serve/front/exposed.go", `if !ok || len(name) > maxURI {`, `if !ok {`, "./internal/serve/front", "TestMergedListsAreBounded"},
		{"P403", "internal/supply/importer/config.go", `case !usualVariable.MatchString(name):`, `case !variableName.MatchString(name):`, "./internal/supply/importer", "TestFolders"},
		{"P404", "internal/gateway/flow/shape.go", "that asks for input\n\t\t\ts.sentences(v, 0)", "that asks for input\n\t\t\t_ = v", "./internal/gateway/flow", "TestRunningText"},
		{"P404", "internal/gateway/flow/shape.go", `	if item[0] != '{' {`, `	if false {`, "./internal/gateway/flow", "TestRunningText"},
		{"P404", "internal/gateway/flow/shape.go", `case name == "data" && isText && s.bytes(text):`, `case name == "data" && isText:`, "./internal/gateway/flow", "TestRunningText"},
		{"P495", "internal/gateway/approve.go", `if g.options.Approvals.TrustElicitation && p.canElicit() {`, `if p.canElicit() {`, "./internal/gateway", "TestElicitation"},
		{"P495", "internal/gateway/approve.go", `if !g.options.Approvals.TrustElicitation {`, `if false {`, "./internal/gateway", "TestElicitationByRepeatedCall"},
		{"P495", "internal/gateway/approve.go", `(!p.Client.Repeats || p.Parent != "")`, `!p.Client.Repeats`, "./internal/gateway", "TestElicitationByRepeatedCall"},
		{"P495", "internal/serve/front/rounds.go", `if s.Approval != "" {`, `if false {`, "./internal/serve/front", "TestApprovalByRepeatedCall"},
		{"P474", "internal/gateway/approve.go", `if stopped = g.prepare(ctx, p); stopped != nil {`, `if false {`, "./internal/gateway", "TestApprovalNeedsAServer"},
		{"P475", "internal/gateway/dataflow.go", `err = g.store.DB.Announce()`, `_ = 0`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P475", "internal/gateway/dataflow.go", `g.store.DB.Owner(), time.Time{})`, `g.store.DB.Owner(), now)`, "./internal/gateway", "TestTextOfAnotherProcessAfterAClockJump"},
		{"P475", "internal/gateway/dataflow.go", `		return &withheld`, `		return stopped`, "./internal/gateway", "TestTextThatCannotBeAnnounced"},
		{"P475", "internal/gateway/dataflow.go", `!known || !kept`, `known && !kept`, "./internal/gateway", "TestNoWayAroundByOrder"},
	}...)
}
