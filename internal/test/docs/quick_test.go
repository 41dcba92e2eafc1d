//go:build unix && !prove

package docs

// proving is true if blocks with the comment prove are run.
const proving = false
