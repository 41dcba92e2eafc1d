package policy

import "testing"

// A schema that is taken declares arguments by types that can be written into the
// schema, where they are read again as what they were.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(Schema))
	f.Add([]byte(`type Arguments = { amount?: Long, "a b"?: Set<String>, deep?: { x: ipaddr } };`))
	f.Add([]byte(`type Arguments = { bad?: Nobody };`))
	f.Add([]byte(`namespace X { type Arguments = {}; }`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		declared, err := ParseSchema("schema", text)
		if err != nil {
			return
		}
		for name, kind := range declared {
			again, err := ParseSchema("schema", []byte("type Arguments = { x?: "+kind+" };"))
			if err != nil || again["x"] != kind {
				t.Fatalf("%q has the type %s, which is read as %v, %v", name, kind, again, err)
			}
		}
	})
}
