// Package cpu measures the CPU time of its own process. On a busy machine it is more meaningful than wall-clock time.
package cpu
