package doc

// members finds the members of objects, also while a tree is being built. Small
// objects are searched linearly; an index keeps large ones fast.
type members struct {
	index map[int32]map[string]int32
}

// fewMembers is the largest object that is searched linearly.
const fewMembers = 16

// find returns the first member of that name, or none. While a tree is built, find
// must be called before each member is added.
func (m *members) find(t *Tree, object int32, key string) int32 {
	nodes := t.nodes
	if nodes[object].count > fewMembers {
		if i, ok := m.indexOf(t, object)[key]; ok {
			return i
		}
		return none
	}
	return t.between(nodes[object].first, none, key, tagOf(key))
}

// between searches the members from from up to, but not including, to for a key with
// that tag, and returns to if there is none. From the first member to none covers all.
func (t *Tree) between(from, to int32, key string, tag uint32) int32 {
	for from != to {
		n := &t.nodes[from]
		if n.keyTag == tag && t.keyOf(n) == key {
			break
		}
		from = n.next
	}
	return from
}

// indexOf returns the up-to-date index of a large object.
func (m *members) indexOf(t *Tree, object int32) map[string]int32 {
	if m.index == nil {
		m.index = make(map[int32]map[string]int32)
	}
	index, ok := m.index[object]
	from := t.nodes[object].last // at most the last member is new
	if !ok {
		index = make(map[string]int32, 4*fewMembers)
		m.index[object] = index
		from = t.nodes[object].first
	}
	for i := from; i >= 0; i = t.nodes[i].next {
		if key := t.keyOf(&t.nodes[i]); index[key] == 0 { // 0 is the root, which is no member
			index[key] = i
		}
	}
	return index
}
