// Package report reports the activity of a process when its job fails or is stopped. It sends
// reports to the process's launcher, through the job's store, and writes the flight recorder's
// files.
package report
