// Package hier is the engine for ranks of which some share a host: shared
// memory inside each host, the network between hosts.
//
// It moves nothing itself. It is made of other engines: one for the ranks of
// this host, one for the first ranks of all hosts, which lead them, and one for
// all ranks. A reduction goes up to the leader, across between the leaders, and
// down again, so that every byte crosses the network once per host and not once
// per rank. What has nothing to gain from that (Gather, Scatter, AllToAll, the
// uneven forms, messages) goes straight through the engine for all ranks, and so
// do reductions whose order matters, if they are to be reproducible.
//
// Which way a call goes follows from its fingerprint. Whatever the way, its
// first step is among the ranks of a host, and its second, if the call has
// several, among the leaders. Every step carries the user's call (engine.Call.Of),
// so that ranks that disagree find out there, and the failure of an inner engine
// shows the user's calls; its ranks are put into the numbers of this group
// (failure.go).
// Leaders that disagree about a root may both wait and send nothing: as for any
// group on the network, the owner passes their positions on.
package hier
