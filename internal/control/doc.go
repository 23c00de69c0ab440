// Package watch is the control channel between the ranks of a job: it lets
// them find each other, exchange what they need to connect, and learn who has
// failed and why. It carries no data of users.
//
// The channel is a star. Rank 0 listens, the others connect to it, both sides
// prove that they know the job's secret, and rank 0 passes on what concerns
// others. Where the job has a certificate, all that is encrypted. A connection
// that ends without a goodbye, or whose other side's host does not answer for a
// while, means that its rank is lost, and all others are told.
package control
