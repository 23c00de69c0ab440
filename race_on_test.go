//go:build race

package tutti_test

const raceEnabled = true
