module github.com/ambit-run/ambit

go 1.26.0

require (
	github.com/Masterminds/semver/v3 v3.5.0
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3
	github.com/pelletier/go-toml/v2 v2.4.3
	golang.org/x/net v0.62.0
)

require golang.org/x/text v0.43.0 // indirect
