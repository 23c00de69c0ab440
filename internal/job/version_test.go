package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
)

// own lists, for each package with an ABI function, the constants and tables that only this rank
// uses: another rank may have other values with the same results. All others must be in the
// package's abi.go.
var own = map[string]string{
	"kernel":          "Int8 Uint8 Int32 Uint32 Int64 Uint64 Float16 BFloat16 Float32 Float64 Int16 Uint16 Sum Prod Min Max And Or Xor numOps pieceBytes NumDTypes tables",
	"transport":       "AnyRank PatientFor",
	"transport/shmem": "recordHeadBytes lockedBytes pollsPerSweep closePause maxAnnounced lockedPolls cacheLine numClasses placeBytes maxSpare minRecordBytes callBytes recordsPerShow maxDrained",
	"transport/tcp":   "stagger retryPause maxTries statusText maxBody smallBody maxSyscallBytes lingerFor slotEmpty slotDialing slotAccepting slotUp slotFailed sweepEvery maxNotes maxSpareStates maxPieceBytes maxAnnounced copyPieceBytes triesPerCheck spinFor noYieldFor hostCheckEvery maxSleep maxTurnBytes maxClosed recordBytes maxUnproven controlConnectTime controlTries",
	"segment":         "maxUnproven proofTime retryTime futexOwnerDied bytes page sizeSeals LivenessBytes",
	"engine":          "AllReduce Reduce Broadcast AllGather ReduceScatter Gather Scatter AllToAll Scan ExScan Barrier Split Dup Alloc Sum Prod Min Max Avg PreMul And Or Xor most more forming KeepBytes OutOfRange NoSuchDevice maxDevice maxBytes AbandonAfter DefaultTimeout NoRank EveryRank RootOnly AllButRoot AllButFirst thisRank NumOps NoScaling ByRanks ByFactor Integers Floats AllElements NoPrefix Inclusive Exclusive least maxOpBytes mostCauses travelKinds unnamed AnyRank NoDevice Freed sameCalls",
	"engine/shm":      "direct readByNone readByRoot readByAll tooLarge minBytes maxSpareBytes most prefetchMax accBytes allRanks vmreadCallMax exitReportTime",
	"engine/p2p":      "noticeEvery notesPerRank notesTurn",
	"engine/network":  "noRank lineBytes rememberedCalls Doubling Halving Ring Direct Linear Bruck Tree Chain Dissemination most forSegment forWork forPart forPack forBatch numScratch",
	"engine/hier":     "sumScratch blockScratch beforeScratch numScratch",
	"control":         "maxHello sendTime version helloReadTime maxTries maxEarly reportTime RemindInterval answerTime nonceBytes tlsHint certHint helloTime maxPending maxUnanswered abortTime replaceTime gaveUpReason linkTime lingerIdle lingerTime reportSteps",
	"overlay":         "present left lost Pace probePace probePerRank maxProbePace leftPace suspectDial buildPerRank lookAhead maxCauses maxPositions DialTime LeaveTime LeaveTick Silent notListening largeJob Refused Unanswered CutOff Send Dial Unlink Lose Depart Fail NotifyPosition",
	"engine/gpu":      "reportWait types ops guardInterval abortTimeout closeLimit closeGrace abortGrace maxKnown maxInflight refill coalesceTime maxCoalesced minPollDelay spinBefore maxAwaitedDelay maxPollDelay costWindow",
}

// TestEveryConstantIsDecided finds constants and tables for which it is not decided whether all
// ranks must have the same. A new one goes into the package's ABI function, or into the list above
// if only this rank uses it.
func TestEveryConstantIsDecided(t *testing.T) {
	for dir, list := range own {
		exempt := strings.Fields(list)
		paths, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declared := make(map[string]token.Position)
		described := make(map[string]bool)
		files := token.NewFileSet()
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(path) == "abi.go" {
				ast.Inspect(file, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						described[id.Name] = true
					}
					return true
				})
			}
			inspect(file, func(id *ast.Ident) { declared[id.Name] = files.Position(id.Pos()) })
		}
		for name, at := range declared {
			if name != "_" && !strings.HasPrefix(strings.ToLower(name), "err") && !described[name] && !slices.Contains(exempt, name) {
				t.Errorf("%s: %s: is %s a value that all ranks must have in common? Then package %s must describe it in its ABI function; "+
					"if not, the list in this test must name it", at, dir, name, dir)
			}
		}
		for _, name := range exempt {
			if _, ok := declared[name]; !ok {
				t.Errorf("%s: there is no %s any more", dir, name)
			}
		}
	}
}

// TestProtocol1Blob compares options as a rank of protocol 1 does. It must find that this rank has
// another protocol.
func TestProtocol1Blob(t *testing.T) {
	alikes := map[string]string{"Config.Verify": "set"}
	blob, err := protocol1Blob(version(""), alikes)
	if err != nil {
		t.Fatal(err)
	}
	var theirs protocol1Info
	if err := json.Unmarshal(blob, &theirs); err != nil {
		t.Fatal(err)
	}
	err = checkOptions([]rankInfo{{options: alikes}, {options: theirs.Alike}})
	want := fmt.Sprintf("tutti's protocol (1 where it is not set) is not set on rank 0, and %d (ABI %s) on rank 1; all ranks must have the same",
		Protocol, version("").ABI)
	if err == nil || err.Error() != want || !errors.Is(err, engine.ErrMismatch) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestVersionIsSteady checks that the hash depends only on the ABI.
func TestVersionIsSteady(t *testing.T) {
	if a, b := description(""), description(""); a != b {
		t.Errorf("%s\nand then\n%s", a, b)
	}
	if version("") == version("more") {
		t.Error("what packages above rely on is not in the hash")
	}
}

// inspect calls found for the constants of a file, including those inside functions, and for its
// variables with an initial value.
func inspect(file *ast.File, found func(*ast.Ident)) {
	for _, decl := range file.Decls {
		top, _ := decl.(*ast.GenDecl)
		ast.Inspect(decl, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST && (d.Tok != token.VAR || d != top) {
				return true
			}
			for _, s := range d.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok || d.Tok == token.VAR && len(v.Values) == 0 {
					continue
				}
				for _, id := range v.Names {
					found(id)
				}
			}
			return true
		})
	}
}
