// Package wire is the engine over point-to-point messages: the algorithms that
// ranks on different hosts carry collectives out with.
//
// A rank counts its calls: each is a step, with a number, a fingerprint and an
// algorithm. All three are in the head of every frame, so whoever receives a
// frame finds out whether its sender is in the same call. Ranks that disagree
// and wait for each other without sending anything cannot find out that way:
// their owner passes their positions on, at leisure (see [Engine.Position] and
// [Engine.Heard]).
//
// An algorithm is a plain loop. It blocks only in send, recv and swap
// (frame.go), and none relies on the transport to hold a frame: where two ranks
// send to each other, both do it in one swap. Every frame that a rank sends is
// received in the same step, also when it is empty.
//
// The results of a reduction are the same bits on every rank: each element is
// combined by one rank and passed on, or by several in the same tree. Which
// tree depends on the algorithm. With Options.Reproducible only algorithms are
// used that combine in rank order, as package shm does.
package network
