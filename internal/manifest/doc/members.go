package doc

// members finds the members of objects, even while a tree is being built. Small objects are searched linearly. Each
// large object has an index.
type members struct {
	index map[int32]map[string]int32
}

// fewMembers is the maximum number of members for a linear search.
const fewMembers = 16

// find returns the first member with the given key in an object. If there is no such member, find returns the constant
// none. While a tree is being built, callers must call find before each addition to a large object, because one call
// adds at most one member to an existing index.
func (m *members) find(t *Tree, object int32, key string) int32 {
	nodes := t.nodes
	if nodes[object].count > fewMembers {
		if i, ok := m.indexOf(t, object)[key]; ok {
			return i
		}
		return none
	}
	return t.findBetween(nodes[object].first, none, key, tagOf(key))
}

// findBetween searches the members of an object. The search begins at t.nodes[first] and ends before t.nodes[limit], or
// at the end of the object if limit is the constant none. The result is the first member with the given key, or limit
// if there is no such member. The tag is tagOf(key).
func (t *Tree) findBetween(first, limit int32, key string, tag uint32) int32 {
	i := first
	for i != limit {
		n := &t.nodes[i]
		if n.keyTag == tag && t.keyOf(n) == key {
			break
		}
		i = n.next
	}
	return i
}

// indexOf returns the up-to-date index of a large object.
func (m *members) indexOf(t *Tree, object int32) map[string]int32 {
	if m.index == nil {
		m.index = make(map[int32]map[string]int32)
	}
	index, ok := m.index[object]
	from := t.nodes[object].last // if there is an index, only the last member can be missing from it
	if !ok {
		index = make(map[string]int32, 4*fewMembers)
		m.index[object] = index
		from = t.nodes[object].first
	}
	for i := from; i >= 0; i = t.nodes[i].next {
		// Node 0 is the root, so index[key] is 0 only if the index does not contain the key.
		if key := t.keyOf(&t.nodes[i]); index[key] == 0 {
			index[key] = i
		}
	}
	return index
}
