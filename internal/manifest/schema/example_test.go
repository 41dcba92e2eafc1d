package schema_test

import (
	"encoding/json"
	"fmt"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/schema"
)

// Every dialect has a JSON Schema that editors can use directly.
func ExampleOf() {
	for _, d := range agent.Dialects {
		var head struct {
			Schema string `json:"$schema"`
		}
		if err := json.Unmarshal(schema.Of(d), &head); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d, head.Schema)
	}
	// Output:
	// matrix https://json-schema.org/draft/2020-12/schema
	// gpars https://json-schema.org/draft/2020-12/schema
	// covenant https://json-schema.org/draft/2020-12/schema
	// findagent https://json-schema.org/draft/2020-12/schema
}
