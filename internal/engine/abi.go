package engine

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what ranks must have in common: fingerprints, farewells, and
// the names of groups.
func ABI() string {
	return abi.Text("engine",
		"sig", abi.Struct[Sig](), "verbs", verbTable, "group", uint8(Group), "operators", opTable, "name", hashName("tutti"), "hash", uint64(HashStart.Word(hashPrime)),
		"farewell", abi.Struct[Farewell](), "farewellHead", farewellHead, "mostLost", mostLost, "farewellKinds", farewellKinds,
		"groupName", GroupName("world", 1, 2), "mostName", mostName, "roundDigits", roundDigits,
	)
}
