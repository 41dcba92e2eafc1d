package importer

// Import imports a file or folder without options, or parts of an OpenAPI description.
func Import(path, output string, only ...string) (*Result, error) {
	return Options{Only: only}.Import(path, output)
}
