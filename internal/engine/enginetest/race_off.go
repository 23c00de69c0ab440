//go:build !race

package enginetest

// raceEnabled says that everything is ten times slower.
const raceEnabled = false
