// Package cpu tells the processor time of the benchmark's own process, which says more
// than the clock on a machine that does other things too.
package cpu
