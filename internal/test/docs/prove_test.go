//go:build unix && prove

package docs

// proving runs the blocks that are marked prove, too.
const proving = true
