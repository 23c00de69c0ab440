// Package doctor implements `tutti doctor`: it examines a machine as the library sees
// it, and reports for each area whether it works and what to do otherwise.
//
// [Gather] collects [Facts], and [Diagnose] turns them into [Line]s. Checks that may
// crash, hang or be killed run in other processes: the [Probes].
package doctor
