// Package dl opens C libraries at run time and calls their functions, without
// cgo. It is the only importer of the loader, which makes a program dynamic: no
// package that a CPU-only program needs may import this one.
//
// Libraries stay open until the process ends: C libraries leave threads, signal
// handlers and exit hooks behind, so that closing one is never safe.
package dl
