// Package jobstore is the schema of the job's store: every key that the ranks and the
// launchers of a job use, with its writer, its value and the time of its first write.
//
// The store has two parts, each below its own prefix. The ranks of one attempt use the
// part Ranks(attempt). The launchers of all hosts use the part Launchers. A restart of
// the job is another attempt, so that its ranks find an empty part.
//
// Ranks of different versions must find each other through the keys of the rendezvous
// before they can refuse each other in words. The texts of these keys must not change;
// TestKeys holds them.
package jobstore
