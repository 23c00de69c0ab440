// Package control is the control channel between the ranks of a job. By Join the ranks find each
// other and exchange the data that they need to connect. After that a rank learns over the channel
// which ranks are lost and why a group has failed. The channel carries no user data.
//
// Join is a star: rank 0 listens and the other ranks connect to it. Both sides prove that they know
// the job's secret. If the job has a certificate, the channel is encrypted. After Join every rank
// has links to a few other ranks, see package overlay. A rank is lost if its link ends without a
// goodbye, or if its host does not answer for Config.HostTimeout; all other ranks are notified.
package control
