package adversary

// These removals concern the data flow of calls, and the calls that a person must approve.
func init() {
	removals = append(removals, []removal{
		{"P330", "internal/gateway/dataflow.go", `s.Observe(g.options.Flow.tool(p.tool), p.canonical, p.result.Raw, src)`, `_ = src`, "./internal/gateway", "TestDoubtfulCallsAskAPerson"},
		{"P330", "internal/gateway/dataflow.go", `s.Read([]byte(stopped.Message+"\n"+stopped.Hint), src)`, `_ = src`, "./internal/gateway", "TestDoubtfulCallsAskAPerson"},
		{"P330", "internal/gateway/forward.go", `if failed := g.observeForward(f, what, answer, err); failed != nil {`, `if failed := error(nil); failed != nil {`, "./internal/gateway", "TestResourcesCount"},
		{"P331", "internal/gateway/dataflow.go", `return g.options.Flow.memories.Of(principal, now).Session(key, now)`, `return flow.NewMemories(flow.DefaultWindow).Of(principal, now).Session(key, now)`, "./internal/gateway", "TestTextCountsForAllAgents"},
		{"P332", "internal/gateway/dataflow.go", `	if end := time.UnixMicro(until); err == nil && end.After(now) {`, `	if end := time.UnixMicro(until); false && end.After(now) {`, "./internal/gateway", "TestTextOfAnotherProcess"},
		{"P333", "internal/gateway/flow/flow.go", `m.forgot = now`, `_ = now`, "./internal/gateway/flow", "TestForgetting"},
		{"P334", "internal/gateway/approval/approval.go", `	if len(q.Origin) > 0 {`, `	if false {`, "./internal/gateway", "TestOriginCannotBeRemoved"},
		{"P335", "internal/gateway/flow/shape.go", `s.opaque = opaque || distrusted(meta)`, `s.opaque = opaque`, "./internal/gateway/flow", "TestLabels"},
		{"P346", "internal/gateway/approve.go", `return t.Policy.HumanApproval || g.options.Operator.Approval.Asks(g.name, t)`, `return t.Policy.HumanApproval`, "./internal/gateway", "TestOperatorRequiresApproval"},
		{"P347", "internal/gateway/record.go", `strings.TrimSuffix(clip(stopped.Message)+"; "+p.noted(), "; ")`, `clip(stopped.Message)`, "./internal/gateway", "TestJournalOfDoubtfulCalls"},
		{"P348", "internal/gateway/dataflow.go", `if t.Decides() || s.Trusts(now) {`, `if t.Decides() {`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P348", "internal/gateway/dataflow.go", `if silent || r(params) == nil {`, `if _ = silent; true {`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P348", "internal/gateway/dataflow.go", `if err := a.read(params); err != nil {`, `if err := error(nil); err != nil {`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P348", "internal/gateway/dataflow.go", `len(more) > 0 && len(v.Findings) == 0 {`, `false {`, "./internal/gateway", "TestContinuedCallsAreTraced"},
		{"P348", "internal/gateway/remember.go", `if stopped = markRead(g, ctx, p); stopped == nil {`, `if stopped == nil {`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P348", "internal/gateway/approve.go", `if p.Continues != "" && !doubtful {`, `if p.Continues != "" {`, "./internal/gateway", "TestNoWayAroundByOrder"},
		{"P370", "internal/gateway/flow/flow.go", `b.repeat(full, tail)`, `_ = tail`, "./internal/gateway/flow", "TestBlockBoundaries"},
		{"P370", "internal/gateway/flow/flow.go", `range decoded(text) {`, `range decoded(nil) {`, "./internal/gateway/flow", "TestDecide"},
		{"P370", "internal/gateway/flow/decide.go", `	case l.role == destination && !d.tool.readsOnly() && d.disguised(l):`, `	case false:`, "./internal/gateway/flow", "TestDecide"},
		{"P371", "internal/gateway/flow/decide.go", `if len(d.found) == 0 && t.Network {`, `if false {`, "./internal/gateway/flow", "TestAcrossSources"},
		{"P372", "internal/gateway/flow/flow.go", `			s.wrote(t, leaves)`, `			_ = leaves`, "./internal/gateway/flow", "TestWrittenValues"},
		{"P372", "internal/gateway/flow/flow.go", `	shape.distrust(&s.m.written, &o)`, `	shape.distrust(&keySet{}, &o)`, "./internal/gateway/flow", "TestWrittenValues"},
		{"P373", "internal/gateway/flow/decide.go", `if d.asks(&hits[i], reach) && (strong`, `if !isName(l) && d.asks(&hits[i], reach) && (strong`, "./internal/gateway/flow", "TestNames"},
		{"P420", "internal/gateway/flow/shape.go", `	s.sentences(meta, 0)`, `	_ = meta`, "./internal/gateway/flow", "TestRunningText"},
		{"P420", "internal/gateway/flow/shape.go", `	case !contains(value):`, `	case true:`, "./internal/gateway/flow", "TestRunningText"},
		{"P421", "internal/gateway/flow/flow.go", `	shape.distrust(&s.m.written, &o)`, `	shape.distrust(&s.m.written, &origin{})`, "./internal/gateway/flow", "TestOrigin"},
		{"P421", "internal/gateway/flow/origin.go", `		case l.role == code && !lists`, `		case false && !lists`, "./internal/gateway/flow", "TestOrigin"},
		{"P422", "internal/gateway/flow/hosts.go", `	if host == nil {`, `	if true {`, "./internal/gateway/flow", "TestComposedAddresses"},
		{"P423", "internal/gateway/flow/decide.go", `	case excess:`, `	case -1:`, "./internal/gateway/flow", "TestHiddenArguments"},
		{"P423", "internal/gateway/flow/roles.go", `	if digits(rest) >= minNumber {`, `	if false {`, "./internal/gateway/flow", "TestHiddenArguments"},
		{"P424", "internal/gateway/flow/decide.go", `		case d.strict:`, `		case false:`, "./internal/gateway/flow", "TestForgottenCommands"},
	}...)
}
