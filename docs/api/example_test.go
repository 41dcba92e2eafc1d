package api_test

import (
	"encoding/json"
	"fmt"

	"github.com/ambit-run/ambit/docs/api"
)

// The description is JSON, so any OpenAPI tool can read it.
func Example() {
	var head struct{ OpenAPI string }
	if err := json.Unmarshal(api.OpenAPI, &head); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(head.OpenAPI)
	// Output: 3.1.0
}
