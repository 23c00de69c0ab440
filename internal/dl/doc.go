// Package dl opens C libraries at run time and calls their functions, without cgo. It is the
// only package that imports the dynamic loader, which makes a program dynamically linked.
// Packages of programs that use only the CPU must not import dl.
//
// Libraries stay open until the process ends. C libraries start threads and install signal
// handlers and exit hooks, so that closing a library is never safe.
package dl
