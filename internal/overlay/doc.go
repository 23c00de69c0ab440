// Package overlay is the state machine of the control channel between the ranks of a job after
// Join. It spreads facts: a rank is lost, a rank has left, the first cause of a group's failure.
//
// A [Node] is one rank's part. It performs no I/O and reads no clock. Its owner passes inputs with
// the current time, and performs the [Action]s that the Node returns, in order. Package control
// owns a Node per process and connects it by TCP. Package sim connects Nodes in virtual time. Both
// run the same code.
//
// # Rules
//
//  1. Facts are never withdrawn. A rank that learns a fact forwards it on its other links before
//     it acts on it. A process that exits because of a fact is therefore never taken for its cause.
//     A rank that has no link to a rank that answers makes one first; see apart in links.go.
//  2. Each rank keeps links to the ranks at distances 1, 2, 4, ... after it, cyclically. A rank that
//     is lost, has left or does not answer is skipped, and its successor replaces it. A rank has
//     O(log n) links, and the ranks that answer are always connected with each other.
//  3. A new link begins with an exchange of all facts, in the order in which the sender learned
//     them, and of the reports without a decision.
//  4. A link that ends without a goodbye is dialed once more. If nothing listens there, the rank is
//     lost. If the host does not answer, all ranks of the host are lost. A rank without a link may
//     have left. It is lost when nothing has listened at its address for a while; the time is longer
//     if another rank that may know of the departure does not answer.
//  5. A stopped process is never lost. A rank that does not acknowledge a message within
//     [SuspectAfter] is suspected: other links are made around it, and its links are kept.
//  6. The coordinator, which is the lowest rank that is neither lost nor has left, decides which of
//     several reported causes of a group's failure is the first. If it does not decide in time, the
//     next rank does. Two decisions do no harm: each rank keeps the first one that it learns. A
//     leaving rank decides nothing. A report that a rank is lost is decided on when that fact is
//     known, when the links with that rank have ended, or after a time: facts arrive in the order of
//     their causes, reports do not.
//  7. A leaving rank says goodbye on all links. It exits when all ranks that answer there have
//     acknowledged the goodbye and all departures that it has acknowledged itself. The
//     acknowledgement of a rank that leaves as well and cannot forward the fact does not count. A
//     rank that stays therefore learns of every departure and never takes one for a loss.
//
// docs/design/control.md explains the rules and the rejected alternatives. The folder model
// contains a model of the rules for Spin.
package overlay
