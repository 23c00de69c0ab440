// Package job forms the groups of a job whose ranks are processes. The ranks find each other
// through package control. Package job determines which ranks share a host, and selects for every
// group the engine that its ranks can use.
package job
