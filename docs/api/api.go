// Package api holds the description of the daemon's HTTP API.
package api

import _ "embed"

// OpenAPI is the description, in the format OpenAPI 3.1, as JSON.
//
//go:embed openapi.json
var OpenAPI []byte
