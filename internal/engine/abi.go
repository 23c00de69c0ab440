package engine

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what ranks must have in common: fingerprints, exit reasons, and
// the names of groups.
func ABI() string {
	return abi.Text("engine",
		"sig", abi.Struct[Fingerprint](), "verbs", verbTable[:Group+1], "group", uint8(Group), "operators", opTable[:NumOps+1], "name", hashName("tutti"), "hash", uint64(HashStart.Word(hashPrime)),
		"farewell", abi.Struct[ExitReason](), "exitReasonHead", exitReasonHead, "mostLost", mostLost, "travelKinds", KindNames(),
		"farewellFacts", []int{factEnd, factLoss, factLimit, factTag, factWait, factSide, factRanks, factUnheard, factBehind, factRelay, factDevice, factCause, factText, factLast, factWaits},
		"facts", abi.Struct[Facts](), "side", abi.Struct[Side](), "messageWait", abi.Struct[MessageWait](), "failure", abi.Struct[failureJSON](),
		"events", []Event{
			Described, CallsDiffer, StepsDiffer, AlgorithmsDiffer, CountsDiffer, SegmentsDiffer, MessagesDiffer, MemoryFreed, OutOfBounds,
			RanksLost, LostElsewhere, LeftElsewhere, LostWhileForming, ParentFailed, FormingFailed, SharingFailed,
			LimitPassed, DeadlinePassed, Cancelled, WaitCycle, TransferDamaged, ResultDiffers, ResultsDiffer,
			TransportFailed, DeviceFailed, DeviceUnfit, AbortCalled, OpCalled, numEvents,
		},
		"phases", []Phase{
			PhaseUnknown, NotBegun, Queued, AboutToWait, Arriving, Finishing, Exchanging, Sending, Receiving, DeviceAtWork, DeviceAhead, numPhases,
		},
		"relays", []Relay{NoRelay, HostsWait, LeaderWaits, HostsNotAsked, numRelays}, "losses", []Loss{Closed, Exited, HostSilent, Disconnected, JoinFailed},
		"call", AppendCall(nil, &CallInfo{Fingerprint: Fingerprint{Verb: 1, Type: 2, ReduceOp: 3, Uneven: true, Root: 4, Count: 5, Name: 6}, Name: "n", Device: true}),
		"label", []int{LabelBytes, stepBit, formBit}, "step", stepName(Fingerprint{Verb: AllReduce, Count: 3}),
		"groupName", GroupName("world", 1, 2), "mostName", mostName, "methodMark", methodMark, "roundDigits", roundDigits,
	)
}
