// Package network is the engine over point-to-point messages: it contains the
// algorithms with which ranks on different hosts run collectives.
//
// A rank counts its calls. Each call is a step, with a number, a fingerprint and
// an algorithm. The head of every frame holds all three, so the receiver of a
// frame detects a sender that is in another call. Ranks that disagree and wait
// for each other without sending cannot detect it that way. Their owner
// exchanges their positions from time to time (see [Engine.Position] and
// [Engine.CheckPosition]).
//
// An algorithm is a plain loop. It blocks only in move and the functions that
// call it, such as send, recv and swap (frame.go). No algorithm relies on the transport to buffer a frame: where two
// ranks send to each other, both do it in one swap. Every frame that a rank
// sends is received in the same step, even if it is empty.
//
// The results of a reduction are the same bits on every rank: each element is
// combined by one rank and passed on, or by several ranks in the same tree. The
// tree depends on the algorithm. With Options.Reproducible the engine uses only
// algorithms that combine in rank order, as package shm does.
//
// When an operation fails, is cancelled or times out, the whole group fails:
// Engine.fail stores the first cause, reports it to Options.OnFail, and stops the
// ParkingLot, which ends all waits of this rank.
package network
