// Package cpu measures the CPU time of its own process. On a busy machine, CPU time varies less than wall-clock time.
package cpu
