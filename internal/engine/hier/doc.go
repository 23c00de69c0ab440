// Package hier is the engine for ranks of which some share a host: shared
// memory inside each host, the network between hosts.
//
// The engine moves no data itself. It contains three inner engines: one for the ranks of
// this host (local), one for the lowest rank of each host (the leaders), and one for all
// ranks. A reduction combines the data of each host on its leader, then the leaders' data,
// and broadcasts the result on each host. So each byte crosses the network once per host
// instead of once per rank. Gather, Scatter, AllToAll, the uneven forms and messages gain
// nothing from that and use the engine for all ranks. So do reductions whose result depends
// on the order, if Options.Reproducible is set, and a Scan if the ranks of a host are not
// consecutive.
//
// The fingerprint of a call alone decides between the two ways, so that all ranks choose the
// same one. In both, the first step is among the ranks of a host. The second step, if the
// call has several, is among the leaders. Every step carries the user's call
// (engine.Call.Of). So ranks that disagree detect it in the first steps, and the failure of
// an inner engine shows the user's calls. failure.go translates its rank numbers into this
// group's.
//
// Leaders that disagree about a root may both wait for data without sending any. As for any
// group on the network, the owner exchanges their positions to detect this.
package hier
