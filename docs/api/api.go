// Package api holds the description of the daemon's HTTP API.
package api

import _ "embed"

// OpenAPI is the description, OpenAPI 3.1 in JSON.
//
//go:embed openapi.json
var OpenAPI []byte
