// Package api holds the description of the daemon's HTTP API.
package api

import _ "embed"

// OpenAPI is the OpenAPI 3.1 description of the API, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte
