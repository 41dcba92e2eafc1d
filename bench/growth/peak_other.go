//go:build !linux

package main

func peak(int, <-chan struct{}) int64 { return 0 }
